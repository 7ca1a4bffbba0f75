"""The Python of Debian 13, in a root directory of that Debian, which is made once: our image is compiled by it.

python build/debian_root.py tests/unit    run pytest with these arguments there (root)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from antrea.errors import AntreaError, Unavailable
from image_build import cache
from image_build.platform import AMD64, ARM64, Platform
from image_build.step import Command, Progress, run, step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
SUITE = "trixie"
VERSION = "3.13"
"""Of Python, as this Debian has it."""
PYTHON = f"python{VERSION}"
TOOLS = f"{PYTHON}-dev,gcc,libc6-dev,openssl,tcpdump"
"""What compiles extension modules for that Python, with it, and what tests run beside it."""
CROSS_TOOLS = f"{TOOLS},gcc-{ARM64.machine}-linux-gnu,libc6-dev-{ARM64.architecture}-cross,lib{PYTHON}-dev:{ARM64.architecture},make"
"""The same for the other architecture as well."""
OPTIONS = (
    "--mode=root",
    "--variant=essential",
    "--format=directory",
    '--aptopt=APT::Install-Recommends "false"',
)
ALONE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
"""Killed with us, and its mounts go with its namespace."""
INSIDE = """
set -e
room=$1 lower=$2 at=$3; shift 3
mount -t tmpfs room "$room"; mkdir "$room/upper" "$room/work" "$room/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$room/upper,workdir=$room/work" "$room/root"
mount --rbind /dev "$room/root/dev"; mount -t proc proc "$room/root/proc"
while [ "$1" != -- ]; do mkdir -p "$room/root$1"; mount --bind "$1" "$room/root$1"; shift; done
shift
exec chroot "$room/root" sh -c 'cd "$0" && exec "$@"' "$at" "$@"
"""
"""Arguments: a mount point, the root, the current directory, folders to show, --, the command."""
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
KEPT = 5


def for_python(platform: Platform) -> tuple[str, ...]:
    """Options of pip: what it installs is for that Python on `platform`, whichever runs pip."""
    python = ("--implementation=cp", f"--python-version={VERSION}")
    return (*python, *(f"--platform={tag}" for tag in platform.wheels), "--only-binary=:all:")


def root(progress: Progress, packages: str = TOOLS) -> Path:
    """A root directory with these packages (`a,b`) and what they depend on. Raises `Unavailable` if it cannot be made."""
    both = (f"--architectures={AMD64.architecture},{ARM64.architecture}",) if ":" in packages else ()
    options = (*OPTIONS, *both, f"--include={packages}")

    def make(part: Path) -> None:
        if not shutil.which("mmdebstrap"):
            raise Unavailable("mmdebstrap is not on this machine: run scripts/bootstrap")
        own = {"SOURCE_DATE_EPOCH": "1", "TMPDIR": str(part), "LC_ALL": "C.UTF-8"}
        command = (*ALONE, "mmdebstrap", *options, SUITE, str(part / "root"))
        log = cache.folder() / "logs/debian-root.log"
        with step(progress, f"Debian 13 with {packages} (about a minute, once)"):
            run(Command(command, log, env={**os.environ, **own}), "mmdebstrap", progress)

    made = cache.made("debian-root", cache.digest(SUITE, *options), make)
    cache.keep("debian-root", KEPT)
    return made / "root"


def packages(progress: Progress) -> Path:
    """What requirements/dev.txt names, for that Python: a folder for PYTHONPATH. Raises `Unavailable`."""
    lock = ROOT / "requirements/dev.txt"

    def make(part: Path) -> None:
        pip = (sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-compile")
        what = ("--target", str(part / "packages"), "--require-hashes", "-r", str(lock))
        log = cache.folder() / "logs/debian-root-packages.log"
        with step(progress, f"packages of requirements/dev.txt for Python {VERSION}"):
            run(Command((*pip, *for_python(AMD64), *what), log), "pip install", progress)

    made = cache.made("debian-root-packages", cache.digest(lock, VERSION, *AMD64.wheels), make)
    cache.keep("debian-root-packages", KEPT)
    return made / "packages"


@contextmanager
def inside(
    command: Sequence[str | Path], *, at: Path, shown: Sequence[Path], tools: str = TOOLS
) -> Iterator[Sequence[str | Path]]:
    """Yield what runs `command` in the root of `tools`, in the folder `at`, with `ENVIRONMENT`.

    It sees the folders `shown` under their own paths, and can change nothing but these. Raises `Unavailable` if the root cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix="antrea-root-") as room:
        yield (*ALONE, "sh", "-c", INSIDE, "inside", room, root(show, tools), at, *shown, "--", *command)


def strip(folder: Path, platform: Platform) -> None:
    """Take from all shared libraries below `folder` the symbols that no loader reads."""
    libraries = sorted(folder.rglob("*.so*"))
    if not platform.foreign:
        subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)
        return
    command: list[str | Path] = [f"{platform.machine}-linux-gnu-strip", "--strip-unneeded", *libraries]
    with inside(command, at=folder, shown=(folder,), tools=CROSS_TOOLS) as words:
        subprocess.run(words, check=True, env=ENVIRONMENT)


def show(line: str) -> None:
    """Progress, to stderr."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run pytest there in our tree."""
    found = packages(show)
    own = {"PYTHONPATH": f"{found}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    command = (PYTHON, "-m", "pytest", "-q", *sys.argv[1:])
    with inside(command, at=ROOT, shown=(ROOT, found)) as words:
        return subprocess.run(words, check=False, env=ENVIRONMENT | own).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AntreaError as error:
        sys.exit(str(error))
