"""Cache outside the tree for results that take long to make, by the hash of all that they are made from."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECENT = 3600.0  # seconds: what was used this lately may still be in use by another lab


def folder() -> Path:
    """`ANTREA_LAB_CACHE`, else `antrea-lab` below `XDG_CACHE_HOME` or `~/.cache` (not created here)."""
    if folder := os.environ.get("ANTREA_LAB_CACHE"):
        return Path(folder).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "antrea-lab"


def digest(*parts: str | bytes | Path) -> str:
    """The sha256 in hexadecimal of texts, bytes and contents of files, each kept apart by its length."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                piece = hashlib.file_digest(file, "sha256").digest()
        else:
            piece = part.encode() if isinstance(part, str) else part
        total.update(len(piece).to_bytes(8, "big") + piece)
    return total.hexdigest()


def made(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `kind/key` of the cache; `make` fills it first if it is not there.

    `make` gets an empty folder beside the final place, which is renamed when `make` returns: a half-made
    folder is never seen, whatever ends the process. Two processes that want the same make it once.
    """
    place = folder() / kind / key
    if not place.exists():
        with _locked(place):
            if not place.exists():
                _make(place, make)
    os.utime(place)
    return place


def keep(kind: str, newest: int) -> list[Path]:
    """Remove all but the `newest` used folders of that kind, never one used within the last hour."""
    entries = [p for p in (folder() / kind).glob("*") if p.is_dir() and not p.name.startswith(".")]
    entries.sort(key=lambda p: p.stat().st_mtime, reverse=True)
    gone = [p for p in entries[newest:] if time.time() - p.stat().st_mtime > RECENT]
    for place in gone:
        shutil.rmtree(place, ignore_errors=True)
    return gone


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f".{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(place: Path, make: Callable[[Path], None]) -> None:
    # under the lock nobody else makes this entry: what lies here was left by a process that was killed
    for left in place.parent.glob(f".{place.name}.part-*"):
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f".{place.name}.part-", dir=place.parent))
    try:
        part.chmod(0o755)
        make(part)
        part.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
