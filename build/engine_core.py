"""Compiles antrea/engine/core by mypyc, cached by content.

    python build/engine_core.py    print the folder with the compiled modules for this Python, for ANTREA_ENGINE

Those of our image are compiled by its own Python, in a root of Debian 13.

The modules stay beside the compiled ones and run where these do not fit (antrea/engine/core/__init__.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import debian_root
from antrea.engine.core import LIBRARIES, LIBRARY, SOURCES, digest_of
from antrea.errors import Unavailable
from image_build import cache
from image_build.platform import AMD64, Platform

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "antrea/engine/core"
KEPT = 6
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


Compiler = Callable[[Path, Sequence[str]], subprocess.CompletedProcess[str]]
"""Runs a Python with these arguments in `ROOT`; it can write to the given folder."""


def modules() -> list[Path]:
    """All modules of the core; the package itself chooses between them and is not compiled."""
    return sorted(path for path in CORE.glob("*.py") if path.name != "__init__.py")


def compiled() -> Path:
    """Return the folder of the modules compiled for this Python, made if need be. Raises Unavailable if they cannot be compiled."""
    return _made(sys.version, _by_this_python, AMD64)


def compiled_for_debian(platform: Platform = AMD64) -> Path:
    """Return the folder of the modules compiled for the Python of Debian 13, made if need be. Raises Unavailable if they cannot be compiled."""
    tools = debian_root.CROSS_TOOLS if platform.foreign else debian_root.TOOLS
    python = f"{debian_root.SUITE} {debian_root.VERSION} {tools}"
    return _made(python, partial(_by_the_python_of_debian, platform), platform)


def _by_this_python(_: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def _by_the_python_of_debian(
    platform: Platform, folder: Path, arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    found = debian_root.packages(debian_root.show)
    own = debian_root.ENVIRONMENT | {"PYTHONPATH": str(found), "PYTHONDONTWRITEBYTECODE": "1"}
    tools = debian_root.TOOLS
    if platform.foreign:
        own, tools = own | cross_environment(platform), debian_root.CROSS_TOOLS
    command, shown = (debian_root.PYTHON, *arguments), (ROOT, found, folder)
    with debian_root.inside(command, at=ROOT, shown=shown, tools=tools) as words:
        return subprocess.run(words, env=own, capture_output=True, text=True, check=False)


def cross_environment(platform: Platform) -> dict[str, str]:
    """What makes setuptools compile for the Python of that architecture, as Debian's own builds do."""
    compiler = f"{platform.machine}-linux-gnu-gcc"
    return {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared",
        "_PYTHON_HOST_PLATFORM": f"linux-{platform.machine}",
        "_PYTHON_SYSCONFIGDATA_NAME": f"_sysconfigdata__{platform.machine}-linux-gnu",
    }


def _made(python: str, compiler: Compiler, platform: Platform) -> Path:
    key = cache.digest(digest_of(CORE), python, version("mypy"), Path(__file__).read_text(), SETUP, *FLAGS)
    found = cache.made("engine-core", key, lambda part: _compile(part, compiler, platform))
    cache.keep("engine-core", KEPT)
    return found


def _compile(part: Path, compiler: Compiler, platform: Platform) -> None:
    with tempfile.TemporaryDirectory(prefix="antrea-engine-") as folder:
        paths = [str(path.relative_to(ROOT)) for path in modules()]
        flags = [*FLAGS, f"--cache-dir={folder}/mypy"]
        done = compiler(Path(folder), ["-c", SETUP, folder, LIBRARY.removesuffix("__mypyc"), *flags, *paths])
        if done.returncode:
            raise Unavailable(f"mypyc does not compile antrea/engine/core:\n{done.stdout}{done.stderr}")
        for library in Path(folder, "lib").rglob("*.so"):
            shutil.copy(library, part)
    debian_root.strip(part, platform)
    (part / SOURCES).write_text(f"{digest_of(CORE)}\n")
    (part / LIBRARIES).write_text(f"{digest_of(part, '.so')}\n")


if __name__ == "__main__":
    print(compiled())
