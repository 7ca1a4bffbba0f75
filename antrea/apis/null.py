"""A null in JSON: to what Go has written, or will read, it is an absent field."""

from __future__ import annotations

from typing import Any


def without_nulls(tree: Any) -> Any:
    """`tree` without members that are null."""
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [without_nulls(value) for value in tree]
    return tree
