"""What the virtual machine sees of this machine, and what a person reads of one that did not run its command."""

from __future__ import annotations

from pathlib import Path

from lab.vm import hidden, readable

PANIC = """\
the guest does not see the working directory /tmp/antrea
[   21.532101] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00007d00
[   21.532644] CPU: 0 PID: 1 Comm: stage2 Not tainted 6.1.0-41-amd64 #1  Debian 6.1.158-1
[   21.533199] Call Trace:
[   21.533491]  <TASK>
[   21.533729]  dump_stack_lvl+0x44/0x5c
"""


def test_of_paths_below_the_guests_own_directories_the_outermost_are_mounted() -> None:
    paths = ("/tmp/a/.venv", "/tmp/a", "/run/b", "/root/c", "/tmpfs", "/usr")
    assert hidden(map(Path, paths)) == [Path("/run/b"), Path("/tmp/a")]
    assert hidden([Path("/srv/x")]) == []


def test_nobody_has_to_read_the_kernels_call_trace() -> None:
    assert readable(PANIC) == "the guest does not see the working directory /tmp/antrea"
    assert readable("[    1.0] no init found\n") == "[    1.0] no init found"
