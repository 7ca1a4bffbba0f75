"""The evaluator's inner loop: places that jobs read, cells that jobs want, and the jobs between them.

One object stands for each thing. A job holds the places that it read and the cells that it made; a cell holds what is
wanted, what a sink confirmed and which jobs wait for it. No table is keyed by a pair, so only keys are hashed.

The classes of this package write each other's attributes: it is one mechanism in several files, and nothing outside
`antrea.engine` touches it.

The modules run as they are, or compiled by mypyc from the same files, as in the image (build/engine_core.py).
`ANTREA_ENGINE=python` forces the former; a path names the folder of the compiled ones. Compiled modules of other
sources, of another Python or another platform are not used.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

LIBRARY = "antrea_engine_core__mypyc"
"""The code of all modules; each of them is a stub beside it."""
SOURCES = "sources.sha256"
LIBRARIES = "libraries.sha256"
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
HERE = Path(__file__).parent


def digest_of(folder: Path, suffix: str = ".py") -> str:
    """Return the SHA-256 of the modules in `folder`, by name."""
    total = hashlib.sha256()
    for path in sorted(folder.glob(f"*{suffix}")):
        if path.name != "__init__.py":
            total.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _load(folder: Path) -> str:
    """Make imports of this package find the compiled modules in `folder`; return which modules run, and why."""
    library = folder / f"{LIBRARY}{SUFFIX}"
    if not library.exists():
        return "python"
    if (folder / SOURCES).read_text().strip() != digest_of(HERE):
        return "python (compiled from other sources)"
    if (folder / LIBRARIES).read_text().strip() != digest_of(folder, SUFFIX):
        return "python (the compiled modules are incomplete or damaged)"
    spec = importlib.util.spec_from_file_location(LIBRARY, library)
    if spec is None or spec.loader is None:
        return "python (the compiled modules cannot be loaded)"
    module = sys.modules[LIBRARY] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    __path__.insert(0, str(folder))
    return "compiled"


def _choose() -> str:
    wanted = os.environ.get("ANTREA_ENGINE", "")
    if wanted == "python":
        return "python (ANTREA_ENGINE)"
    try:
        return _load(Path(wanted) if wanted else HERE / "compiled")
    except (ImportError, OSError) as error:
        sys.modules.pop(LIBRARY, None)
        return f"python ({error})"


IMPLEMENTATION = _choose()
"""Which modules run: "compiled", or "python" with the reason if it is not the absence of compiled ones."""
