"""The product's wheel: our package with the engine's core compiled, for the Python and the platform that build it.

    python build/wheel.py [--out FOLDER]    write the wheel and print its path

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


def wheel(out: Path) -> Path:
    """Write the wheel into `out` and return its path. Raises Unavailable if it cannot be built."""
    out.mkdir(parents=True, exist_ok=True)
    modules = compiled()
    with tempfile.TemporaryDirectory(prefix="antrea-wheel-") as folder:
        tree = Path(folder)
        shutil.copytree(
            ROOT / "antrea", tree / "antrea", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        shutil.copytree(modules, tree / CORE.relative_to(ROOT) / "compiled")
        for name in SOURCES:
            shutil.copy(ROOT / name, tree)
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
    print(wheel(parser.parse_args().out))


if __name__ == "__main__":
    main()
