"""Processes of a lab's node, and of its control plane, have the part of a processor that `cpu` of the lab says."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lab import cgroup, cluster
from lab.record import Record

if TYPE_CHECKING:
    from pathlib import Path

BUSY = """
import time
end = time.monotonic() + 2
while time.monotonic() < end:
    pass
"""
JOIN = 'for group in "$@"; do echo $$ >"$group/cgroup.procs"; done; exec "$PYTHON" -c "$BUSY"'


def times_held_back(groups: list[Path]) -> int:
    """How often processes of the groups had used their part and waited, as the kernel counts it."""
    text = "".join((group / "cpu.stat").read_text() for group in groups if (group / "cpu.stat").exists())
    return int(dict(line.split() for line in text.splitlines())["nr_throttled"])


@pytest.mark.parametrize("percent", [5, 0])
def test_processes_of_a_node_have_the_part_of_a_processor_that_the_lab_says(percent: int) -> None:
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "cgroups need root"
        pytest.skip("cgroups need root")
    record = Record(f"cpu{os.getpid()}")
    try:
        with record.locked():
            cgroup.limit(record, percent)
            groups = cgroup.create(record, "node-1")
        command = ["bash", "-c", JOIN, "join", *map(str, groups)]
        subprocess.run(command, env=os.environ | {"PYTHON": sys.executable, "BUSY": BUSY}, check=True)
        assert bool(times_held_back(groups)) == bool(percent)
        assert cgroup.is_limited(record) == bool(percent)
    finally:
        assert cluster.down(record)
