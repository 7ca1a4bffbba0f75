"""antctl as one file, which runs with every CPython from 3.11 to 3.14 on Linux (x86_64, arm64) and macOS (arm64).

    python build/antctl_file.py [--out FOLDER]    write build/out/antctl and print its path

The packages are those of requirements/runtime.txt that antctl imports. Of most of them the modules in pure Python suffice. msgspec and
cryptography have none, and PyYAML's parser in C is used; the file has their compiled modules for each Python and platform.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
START: Final = Path(__file__).parent / "antctl_start.py"
PURE: Final = (
    *("aiohappyeyeballs", "aiohttp", "aiosignal", "attrs", "click", "frozenlist", "idna", "multidict", "propcache"),
    *("typing-extensions", "yarl"),
)  # fmt: skip
OF_PLATFORM: Final = ("cryptography",)
"""Compiled for the stable ABI: one module for all versions of Python."""
OF_VERSION: Final = ("msgspec", "cffi", "pyyaml")
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = {
    "linux-x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "linux-aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "darwin-aarch64": ("macosx_11_0_arm64", "macosx_10_12_universal2", "macosx_10_9_universal2"),
}
"""Tags of wheels by the name that build/antctl_start.py has for the platform."""
COMPILED: Final = (".so", ".pyd", ".dylib")
UNUSED: Final = (".pyi", ".pyx", ".pxd", ".c", ".h", ".pyc")
TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The same in each build, so that equal sources make equal files."""
SHEBANG: Final = b"#!/usr/bin/env python3\n"


def pinned(names: Sequence[str]) -> str:
    """Lines of requirements/runtime.txt for these packages, with their hashes."""
    text = (ROOT / "requirements/runtime.txt").read_text()
    blocks = {block.partition("==")[0]: block for block in re.split(r"(?m)^(?=[A-Za-z])", text)}
    return "".join(blocks[name] for name in names)


def install(target: Path, names: Sequence[str], version: str, tags: Sequence[str]) -> None:
    """Put packages for a Python and a platform into a folder. Raises Unavailable."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pinned(names))
        file.flush()
        command = [
            *(sys.executable, "-P", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"),
            *("--no-compile", "--require-hashes", "--only-binary=:all:", "--implementation=cp"),
            *(f"--python-version={version}", "--target", str(target), "-r", file.name),
            *(f"--platform={tag}" for tag in tags),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"pip does not install {', '.join(names)} for Python {version}:\n{done.stderr}")


def collect(folder: Path) -> None:
    """Fill `folder` with the parts that build/antctl_start.py chooses from."""
    first = next(iter(PLATFORMS.values()))
    install(folder / "pure", PURE, VERSIONS[0], first)
    for path in [*(folder / "pure").rglob("*")]:
        if path.suffix in COMPILED:
            path.unlink()
    unused = shutil.ignore_patterns("__pycache__", "ui", "compiled")
    shutil.copytree(ROOT / "antrea", folder / "pure/antrea", ignore=unused)
    for name, tags in PLATFORMS.items():
        install(folder / name, OF_PLATFORM, VERSIONS[0], tags)
        for version in VERSIONS:
            install(folder / f"{name}-cp{version.replace('.', '')}", OF_VERSION, version, tags)


def entries(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Files of the archive by name, in order."""
    yield "__main__.py", START.read_bytes()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in UNUSED and "bin" not in path.relative_to(folder).parts[1:2]:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def write(folder: Path, file: Path, level: int = 9) -> None:
    """Make the file of the parts in `folder`, in one step, compressed by `level`."""
    total = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="antctl-file-", dir=file.parent) as name:
        part = Path(name) / file.name
        part.write_bytes(SHEBANG)
        with zipfile.ZipFile(part, "a", zipfile.ZIP_DEFLATED) as archive:
            for entry, data in entries(folder):
                archive.writestr(zipfile.ZipInfo(entry, TIME), data, zipfile.ZIP_DEFLATED, level)
                total.update(f"{entry}\0{len(data)}\0".encode() + data)
            archive.comment = total.hexdigest()[:16].encode()
        part.chmod(0o755)
        part.rename(file)


def antctl_file(out: Path) -> Path:
    """Write the file into `out` and return its path. Raises Unavailable."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="antctl-parts-") as name:
        collect(Path(name))
        write(Path(name), out / "antctl")
    return out / "antctl"


def main() -> None:
    """Write the file and print its path."""
    parser = argparse.ArgumentParser(description="Write antctl as one file.")
    parser.add_argument("--out", type=Path, default=ROOT / "build/out")
    print(antctl_file(parser.parse_args().out))


if __name__ == "__main__":
    main()
