"""Our tests on the Python of Debian 13, in a root directory of that Debian, which is made once.

python build/debian_root.py tests/unit    run pytest with these arguments there (root)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from antrea.errors import AntreaError, Unavailable
from antrea.lab import cache
from antrea.lab.step import Command, Progress, run, step

ROOT = Path(__file__).resolve().parent.parent
SUITE = "trixie"
VERSION = "3.13"
"""Of Python, as this Debian has it."""
PYTHON = f"python{VERSION}"
OPTIONS = (
    "--mode=root",
    "--variant=essential",
    "--format=directory",
    '--aptopt=APT::Install-Recommends "false"',
)
ALONE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
"""Killed with us, and its mounts go with its namespace."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
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
KEPT = 4


def root(progress: Progress, package: str = PYTHON) -> Path:
    """A root directory with this package and what it depends on. Raises `Unavailable` if it cannot be made."""
    options = (*OPTIONS, f"--include={package}")

    def make(part: Path) -> None:
        if not shutil.which("mmdebstrap"):
            raise Unavailable("mmdebstrap is not on this machine: run scripts/bootstrap")
        own = {"SOURCE_DATE_EPOCH": "1", "TMPDIR": str(part), "LC_ALL": "C.UTF-8"}
        command = (*ALONE, "mmdebstrap", *options, SUITE, str(part / "root"))
        log = cache.folder() / "logs/debian-root.log"
        with step(progress, f"Debian 13 with {package} (about a minute, once)"):
            run(Command(command, log, env={**os.environ, **own}), "mmdebstrap", progress)

    made = cache.made("debian-root", cache.digest(SUITE, *options), make)
    cache.keep("debian-root", KEPT)
    return made / "root"


def packages(progress: Progress) -> Path:
    """What requirements/dev.txt names, for that Python: a folder for PYTHONPATH. Raises `Unavailable`."""
    lock = ROOT / "requirements/dev.txt"

    def make(part: Path) -> None:
        pip = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile")
        where = ("--target", str(part / "packages"), "--implementation=cp", f"--python-version={VERSION}")
        platforms = [f"--platform={name}" for name in PLATFORMS]
        what = ("--only-binary=:all:", "--require-hashes", "-r", str(lock))
        log = cache.folder() / "logs/debian-root-packages.log"
        with step(progress, f"packages of requirements/dev.txt for Python {VERSION}"):
            run(Command((*pip, *where, *platforms, *what), log), "pip install", progress)

    made = cache.made("debian-root-packages", cache.digest(lock, VERSION, *PLATFORMS), make)
    cache.keep("debian-root-packages", KEPT)
    return made / "packages"


def main() -> int:
    """Run pytest there in our tree; the tree is all that it can write to and leave."""
    shown = (str(ROOT), str(packages(print)))
    own = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": shown[1],
    }
    own |= {"PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    command = (PYTHON, "-m", "pytest", "-q", *sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="antrea-root-") as room:
        words = (
            *ALONE,
            "sh",
            "-c",
            INSIDE,
            "inside",
            room,
            str(root(print)),
            shown[0],
            *shown,
            "--",
            *command,
        )
        return subprocess.run(words, check=False, env=own).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AntreaError as error:
        sys.exit(str(error))
