"""Features by what their modules import: which needs which, and which a program can do without."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import antrea
from antrea.features import FEATURES

PRODUCT = Path(antrea.__path__[0])
HOMES = PRODUCT / "features"


@cache
def modules_in(path: Path) -> frozenset[str]:
    """Modules that a file imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def features_in(path: Path) -> set[str]:
    """Features of which a file imports a module."""
    parts = (module.split(".") for module in modules_in(path))
    return {part[2] for part in parts if part[:2] == ["antrea", "features"] and len(part) > 2} & {*FEATURES}


@cache
def edges() -> frozenset[tuple[str, str]]:
    """Pairs of features of which the first imports modules of the second."""
    return frozenset(
        (name, other)
        for name in FEATURES
        for path in (HOMES / name).rglob("*.py")
        for other in features_in(path) - {name}
    )


@cache
def required() -> frozenset[str]:
    """Features of which programs import modules, and what these need."""
    files = (path for path in PRODUCT.rglob("*.py") if not path.is_relative_to(HOMES))
    found = {name for path in files for name in features_in(path)}
    while more := {other for name, other in edges() if name in found} - found:
        found |= more
    return frozenset(found)


def dependents(name: str) -> set[str]:
    """A feature with all that import its modules, or modules of these."""
    found = {name}
    while more := {one for one, other in edges() if other in found} - found:
        found |= more
    return found
