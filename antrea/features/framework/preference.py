"""Preferred Nodes of an address, and when it goes back to one, by annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import PREFERRED_NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

IMMEDIATE: Final = "immediate"
NEVER: Final = "never"
WHEN_IDLE: Final = "when-idle"


def preferred_nodes(annotations: Mapping[str, str], key: str = PREFERRED_NODES) -> tuple[str, ...]:
    """In the user's order, each once."""
    names = (name.strip() for name in annotations.get(key, "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))
