"""Load what the features of a list declare, one side of them at a time: a program imports nothing that it does not run."""

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
"""Where the folders of features are."""
PART_SUFFIX = "_part"
"""How names of modules and folders end that may have effects; all others are pure."""


def declared(
    names: Iterable[str], side: str, kind: type[T], attribute: str = "FEATURES"
) -> dict[str, tuple[T, ...]]:
    """What each feature's module `side` defines as `attribute`, by the feature's name, in order of `names`.

    A feature without such a module is left out. Raises ValueError for a name without a folder, TypeError if the module
    defines something else than a tuple of `kind`.
    """
    found: dict[str, tuple[T, ...]] = {}
    for name in names:
        if find_spec(f"{PACKAGE}.{name}") is None:
            raise ValueError(
                f"no feature is in {PACKAGE.replace('.', '/')}/{name}, which antrea/features/__init__.py lists"
            )
        if module := module_of(name, side):
            rows: Any = getattr(module, attribute, ())
            if not isinstance(rows, tuple) or not all(isinstance(row, kind) for row in rows):
                raise TypeError(f"{module.__name__}.{attribute} must be a tuple of {kind.__name__}")
            found[name] = rows
    return found


def module_of(name: str, side: str) -> ModuleType | None:
    """Module `side` of the feature `name`; None: it has none.

    If that is a folder, the module `part` in the folder of a part, else the module `feature` in it.
    """
    path = f"{PACKAGE}.{name}.{side}"
    spec = find_spec(path)
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        return import_module(path)
    return import_module(f"{path}.{'part' if side.endswith(PART_SUFFIX) else 'feature'}")


def merged(what: str, found: Iterable[Mapping[K, V]]) -> dict[K, V]:
    """All of these in one. Raises ValueError for a key that two of them have; `what` names its kind."""
    whole: dict[K, V] = {}
    for one in found:
        if twice := sorted(str(key) for key in one if key in whole):
            raise ValueError(f"{what} {', '.join(twice)}: two parts have it")
        whole |= one
    return whole
