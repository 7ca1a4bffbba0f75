"""ovs-vswitchd of the next Debian with its own libraries, for what that of this Debian cannot do."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "trixie"
PACKAGES = "openvswitch-switch,libc6"
PROGRAM = """#!/bin/sh
libraries={tree}/usr/lib/x86_64-linux-gnu
exec $libraries/ld-linux-x86-64.so.2 --library-path $libraries --argv0 ovs-vswitchd {tree}/usr/lib/openvswitch-switch/ovs-vswitchd "$@"
"""


def first_in_path(cache: Path) -> Path:
    """The directory that has it; unpacked once, below `cache`. Raises CalledProcessError."""
    tree = cache / f"ovs-{SUITE}"
    programs = tree / "first"
    if not programs.exists():
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=extract", f"--include={PACKAGES}", SUITE, tree], check=True
        )
        tree.chmod(0o755)
        programs.mkdir()
        program = programs / "ovs-vswitchd"
        program.write_text(PROGRAM.format(tree=tree))
        program.chmod(0o755)
    return programs
