"""The files of an image layer, described in memory and written as the same bytes every time."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import IO

import msgspec

from antrea.errors import Unavailable
from image_build import cache


class Entry(msgspec.Struct, frozen=True):
    """One name in a layer: a folder, or a link to `target`, or a file with `content`."""

    mode: int
    content: Path | bytes | None = None
    target: str | None = None


class Tree:
    """Names (absolute in the image, without the first slash) and what is there; folders come by themselves."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def folder(self, name: str, mode: int = 0o755) -> None:
        """A folder; those above it are added with mode 0755."""
        self._add(name, Entry(mode))

    def file(self, name: str, content: Path | bytes, mode: int = 0o644) -> None:
        """A file owned by root with that content, read when the layer is written."""
        self._add(name, Entry(mode, content=content))

    def link(self, name: str, target: str) -> None:
        """A symbolic link."""
        self._add(name, Entry(0o777, target=target))

    def copy(self, name: str, source: Path) -> None:
        """Everything below a folder of this machine, under `name`; a program stays executable."""
        for path in sorted(source.rglob("*")):
            place = f"{name}/{path.relative_to(source)}"
            if path.is_symlink():
                self.link(place, str(path.readlink()))
            elif path.is_dir():
                self.folder(place)
            else:
                self.file(place, path, 0o755 if path.stat().st_mode & 0o100 else 0o644)

    def program(self, name: str, source: Path) -> None:
        """A program of this machine, and at their own places the shared libraries that it loads."""
        self.file(name, source.resolve(), 0o755)
        for library in libraries(source):
            self.file(str(library), library.resolve(), 0o755)

    def key(self) -> str:
        """The hash of names, modes and contents."""
        parts: list[str | bytes | Path] = []
        for name, entry in sorted(self.entries.items()):
            parts += [f"{name}\0{entry.mode:o}\0{entry.target}", entry.content or b""]
        return cache.digest(*parts)

    def write(self, out: IO[bytes]) -> None:
        """The layer as tar: sorted, owned by root, all times zero."""
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, entry in sorted(self.entries.items()):
                _write(tar, name, entry)

    def _add(self, name: str, entry: Entry) -> None:
        name = name.strip("/")
        if "/" in name:
            above = name.rpartition("/")[0]
            if above not in self.entries:
                self._add(above, Entry(0o755))
        self.entries[name] = entry


def static_program(source: Path) -> Path:
    """The static program of a C file, from the cache or compiled now; raises `Unavailable` without a compiler."""

    def compile_(part: Path) -> None:
        gcc = machine_program("gcc", "gcc and libc6-dev")
        to = (part / source.stem, source)
        subprocess.run([gcc, "-Os", "-static", "-s", "-Wall", "-Wextra", "-Werror", "-o", *to], check=True)

    return cache.made(source.stem, cache.digest(source), compile_) / source.stem


def machine_program(name: str, package: str) -> Path:
    """A program of this machine; raises `Unavailable`, which names the Debian package that has it."""
    path = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if path is None:
        raise Unavailable(
            f"{name} is not on this machine: run scripts/bootstrap, or apt-get install {package}"
        )
    return Path(path)


def libraries(program: Path) -> list[Path]:
    """Return the libraries that the dynamic loader would load for a program (none for a static one). Raises `Unavailable`."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if "not found" in said.stdout:
        raise Unavailable(f"{program} lacks a library on this machine: {said.stdout}")
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", said.stdout)]


def _write(tar: tarfile.TarFile, name: str, entry: Entry) -> None:
    info = tarfile.TarInfo(name)
    info.mode = entry.mode
    if entry.target is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
        tar.addfile(info)
    elif entry.content is None:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif isinstance(entry.content, bytes):
        info.size = len(entry.content)
        tar.addfile(info, io.BytesIO(entry.content))
    else:
        info.size = entry.content.stat().st_size
        with entry.content.open("rb") as file:
            tar.addfile(info, file)
