"""Compiles antrea/engine/core by mypyc, cached by content.

    python build/engine_core.py    print the folder with the compiled modules, for ANTREA_ENGINE

The modules stay beside the compiled ones and run where these do not fit (antrea/engine/core/__init__.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from antrea.engine.core import LIBRARIES, LIBRARY, SOURCES, SUFFIX, digest_of
from antrea.errors import Unavailable
from antrea.lab import cache

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "antrea/engine/core"
KEPT = 4
FLAGS = ("--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--no-error-summary")
SETUP = """
import sys
from setuptools import setup
from mypyc.build import mypycify

out, group, *arguments = sys.argv[1:]
setup(
    name="core",
    ext_modules=mypycify(arguments, opt_level="3", debug_level="0", group_name=group, target_dir=out + "/c"),
    script_args=["-q", "build_ext", "--build-lib", out + "/lib", "--build-temp", out + "/tmp"],
)
"""


def modules() -> list[Path]:
    """All modules of the core; the package itself chooses between them and is not compiled."""
    return sorted(path for path in CORE.glob("*.py") if path.name != "__init__.py")


def compiled() -> Path:
    """Return the folder of the compiled modules, made if need be. Raises Unavailable if they cannot be compiled."""
    key = cache.digest(
        digest_of(CORE), sys.version, version("mypy"), Path(__file__).read_text(), SETUP, *FLAGS
    )
    found = cache.made("engine-core", key, _compile)
    cache.keep("engine-core", KEPT)
    return found


def _compile(part: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="antrea-engine-") as folder:
        paths = [str(path.relative_to(ROOT)) for path in modules()]
        flags = [*FLAGS, f"--cache-dir={folder}/mypy"]
        command = [sys.executable, "-c", SETUP, folder, LIBRARY.removesuffix("__mypyc"), *flags, *paths]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"mypyc does not compile antrea/engine/core:\n{done.stdout}{done.stderr}")
        for library in Path(folder, "lib").rglob("*.so"):
            subprocess.run(["strip", "--strip-unneeded", library], check=True)
            shutil.copy(library, part)
    (part / SOURCES).write_text(f"{digest_of(CORE)}\n")
    (part / LIBRARIES).write_text(f"{digest_of(part, SUFFIX)}\n")


if __name__ == "__main__":
    print(compiled())
