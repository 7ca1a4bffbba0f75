"""Programs of the folder build/, which is not a package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

BUILD = Path(__file__).parents[2] / "build"


def load_build_program(name: str) -> Any:
    """Import build/<name>.py under a name that no package has."""
    spec = importlib.util.spec_from_file_location(f"build_{name}", BUILD / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
