"""The product's wheel: our package with the engine's core compiled, for the Python and the platform that build it.

    python build/wheel.py [--out FOLDER]    write the wheel and print its path
    python build/wheel.py --pure            the same without compiled modules, for every platform: what antctl needs

The uncompiled modules are in it as well, and run where the compiled ones do not fit (antrea/engine/core/__init__.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from antrea.errors import Unavailable
from engine_core import CORE, ROOT, compiled

OUT = ROOT / "build/out"
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
SETUP = """
from setuptools import Distribution, setup


class OfPlatform(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=OfPlatform)
"""
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def wheel(out: Path, *, pure: bool = False) -> Path:
    """Write the wheel into `out` and return its path. Raises Unavailable if it cannot be built."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="antrea-wheel-") as folder:
        tree = Path(folder)
        shutil.copytree(
            ROOT / "antrea", tree / "antrea", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        for name in SOURCES:
            shutil.copy(ROOT / name, tree)
        if not pure:
            shutil.copytree(compiled(), tree / CORE.relative_to(ROOT) / "compiled")
            (tree / "setup.py").write_text(SETUP)
        command = [sys.executable, "-c", BUILD, str(out.resolve())]
        # the time in the archive is that of no build, so that equal sources make equal wheels
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"setuptools does not build the wheel:\n{done.stdout}{done.stderr}")
    return out / done.stdout.split()[-1]


def main() -> None:
    """Write the wheel and print its path."""
    parser = argparse.ArgumentParser(
        description="Write the product's wheel, with the engine's core compiled."
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--pure", action="store_true", help="without compiled modules")
    options = parser.parse_args()
    print(wheel(options.out, pure=options.pure))


if __name__ == "__main__":
    main()
