"""ovs-vswitchd of our image, with the libraries that it has there, beside programs of this machine."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from image_build import cache
from lab import image_recipe

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES, DAEMON = "usr/lib/x86_64-linux-gnu", "usr/lib/openvswitch-switch"
PROGRAM = f"""#!/bin/sh
image=${{0%/*}}
libraries=$image/{LIBRARIES}
exec $libraries/ld-linux-x86-64.so.2 --library-path $libraries --argv0 ovs-vswitchd $image/{DAEMON}/ovs-vswitchd "$@"
"""


def first_in_path() -> Path:
    """The directory that has it; unpacked once of each base of our image. Raises Unavailable and CalledProcessError."""
    base = image_recipe.product(print).layers[0]

    def unpack(part: Path) -> None:
        subprocess.run(["tar", "-xf", base.path, "-C", part, f"./{LIBRARIES}", f"./{DAEMON}"], check=True)
        program = part / "ovs-vswitchd"
        program.write_text(PROGRAM)
        program.chmod(0o755)

    return cache.made("switch", cache.digest(base.digest, PROGRAM), unpack)
