"""Loader of what features declare, one side at a time: a program imports only what it runs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
PACKAGE = "antrea.features"
"""Package of the features' folders."""
PART_SUFFIX = "_part"
"""Suffix of modules and folders that may have effects; all others are pure."""


def declared(
    names: Iterable[str], side: str, kind: type[T], attribute: str = "FEATURES"
) -> dict[str, tuple[T, ...]]:
    """Return what each feature's module `side` defines as `attribute`, by the feature's name, in order of `names`.

    A feature without such a module is left out. Raises ValueError for a name without a folder, TypeError if the module defines
    something else than a tuple of `kind`.
    """
    declarations: dict[str, tuple[T, ...]] = {}
    for name in names:
        if find_spec(f"{PACKAGE}.{name}") is None:
            raise ValueError(
                f"no feature is in {PACKAGE.replace('.', '/')}/{name}, which antrea/features/__init__.py lists"
            )
        if module := module_of(name, side):
            rows: Any = getattr(module, attribute, ())
            if not isinstance(rows, tuple) or not all(isinstance(row, kind) for row in rows):
                raise TypeError(f"{module.__name__}.{attribute} must be a tuple of {kind.__name__}")
            declarations[name] = rows
    return declarations


def module_of(name: str, side: str) -> ModuleType | None:
    """Import module `side` of the feature `name`; None if it has none.

    If that is a folder, the module `part` in the folder of a part, else the module `feature` in it.
    """
    path = f"{PACKAGE}.{name}.{side}"
    spec = find_spec(path)
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        return import_module(path)
    return import_module(f"{path}.{'part' if side.endswith(PART_SUFFIX) else 'feature'}")


def merged(what: str, mappings: Iterable[Mapping[K, V]]) -> dict[K, V]:
    """Merge mappings into one. Raises ValueError for a duplicate key; `what` names its kind."""
    whole: dict[K, V] = {}
    for mapping in mappings:
        if twice := sorted(str(key) for key in mapping if key in whole):
            raise ValueError(f"{what} {', '.join(twice)}: two parts have it")
        whole |= mapping
    return whole
