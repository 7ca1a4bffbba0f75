"""Selectors that cannot mean what they say, wherever they are in an object: its author is told, and it is admitted as upstream does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.part import LabelSelector
from antrea.features.admission import Warn
from antrea.features.label import key_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.crd.part import Requirement


def selector_doubts(spec: object, path: str = "spec") -> Iterator[Warn]:
    """One sentence for each key that no label has, and for each operator whose values do not fit."""
    for where, selector in _selectors(spec, path):
        for key in selector.match_labels:
            if key_faults(key):
                yield Warn(f"{where}.matchLabels: {_no_key(key)}, so it selects nothing")
        for index, one in enumerate(selector.match_expressions):
            at = f"{where}.matchExpressions[{index}]"
            if key_faults(one.key):
                yield Warn(f"{at}.key: {_no_key(one.key)}")
            if why := _values(one):
                yield Warn(f"{at}.values: {why}")


def _no_key(key: str) -> str:
    return f"no label has the key {key!r}"


def _values(one: Requirement) -> str:
    """What is wrong with them; empty: nothing."""
    operator = one.operator or "In"
    if operator in ("In", "NotIn"):
        nothing = "nothing is selected" if operator == "In" else "nothing is left out"
        return "" if one.values else f"{operator} without values: {nothing}"
    return f"they count for nothing with {operator}" if one.values else ""


def _selectors(value: object, path: str) -> Iterator[tuple[str, LabelSelector]]:
    if isinstance(value, LabelSelector):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            yield from _selectors(getattr(value, field), f"{path}.{name}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _selectors(item, f"{path}[{index}]")
