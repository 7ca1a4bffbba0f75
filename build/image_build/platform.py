"""Processor architectures of images, and programs of another one than this machine's, run by QEMU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence


class Platform(NamedTuple):
    """A processor architecture with its names."""

    architecture: str
    """Name in OCI and Debian."""
    machine: str
    """Name in the kernel, in GNU tools and in tags of wheels."""

    @property
    def foreign(self) -> bool:
        """Whether this machine runs its programs by emulation."""
        return self != AMD64

    @property
    def wheels(self) -> tuple[str, ...]:
        """Tags of wheels that run on Debian 13, best first."""
        return tuple(f"{tag}_{self.machine}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"))

    @property
    def debian_options(self) -> tuple[str, ...]:
        """Options of mmdebstrap; `emulated` does what the check of it that is left out looks for."""
        return (f"--architectures={self.architecture}", "--skip=check/qemu") if self.foreign else ()


AMD64 = Platform("amd64", "x86_64")
"""The machine that builds."""
ARM64 = Platform("arm64", "aarch64")
PLATFORMS = {platform.architecture: platform for platform in (AMD64, ARM64)}
REGISTER = """
set -e
at=/proc/sys/fs/binfmt_misc name=$1; shift
mount -t binfmt_misc binfmt_misc $at
[ -e $at/$name ] || cat /usr/lib/binfmt.d/$name.conf >$at/register
exec "$@"
"""
"""Arguments: the name of the format, the command. A recent kernel forgets the format with the last mount of it."""


def emulated(platform: Platform, command: Sequence[str]) -> tuple[str, ...]:
    """Return what runs `command` where the kernel starts programs of that architecture, in any root directory.

    It has to run in a mount namespace of its own, as root. Raises `Unavailable` if QEMU is not there.
    """
    if not platform.foreign:
        return tuple(command)
    name = f"qemu-{platform.machine}"
    if not Path(f"/usr/lib/binfmt.d/{name}.conf").exists():
        raise Unavailable(
            f"QEMU for programs of {platform.architecture} is not on this machine: apt-get install qemu-user-static"
        )
    return ("sh", "-c", REGISTER, "emulated", name, *command)
