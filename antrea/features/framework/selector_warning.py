"""Selectors that cannot mean what is written, anywhere in an object: refused, or their author is warned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.part import LabelSelector
from antrea.errors import Invalid
from antrea.features.framework.admission import Warn
from antrea.features.framework.label import key_faults, value_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.crd.part import Requirement


def selector_doubts(spec: object, path: str = "spec") -> Iterator[Warn]:
    """Yield a warning for each operator whose values do not fit. Raises Invalid for keys and values that no label can have.

    Upstream stores these, and its controller then leaves out the whole selector, so that it selects everything.
    """
    for where, selector in _selectors(spec, path):
        for key, value in selector.match_labels.items():
            _check(f"{where}.matchLabels", key, (value,))
        for index, requirement in enumerate(selector.match_expressions):
            at = f"{where}.matchExpressions[{index}]"
            _check(at, requirement.key, requirement.values)
            if why := _values(requirement):
                yield Warn(f"{at}.values: {why}")


def _check(path: str, key: str, values: tuple[str, ...]) -> None:
    if faults := key_faults(key):
        raise Invalid(path, f"Invalid label key: {key!r}: {'; '.join(faults)}")
    for value in values:
        if faults := value_faults(value):
            raise Invalid(path, f"Invalid label value: {value!r}: {'; '.join(faults)}")


def _values(requirement: Requirement) -> str:
    """Return what is wrong with the values; empty if nothing."""
    operator = requirement.operator or "In"
    if operator in ("In", "NotIn"):
        nothing = "nothing is selected" if operator == "In" else "nothing is left out"
        return "" if requirement.values else f"{operator} without values: {nothing}"
    return f"they count for nothing with {operator}" if requirement.values else ""


def _selectors(value: object, path: str) -> Iterator[tuple[str, LabelSelector]]:
    if isinstance(value, LabelSelector):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            yield from _selectors(getattr(value, field), f"{path}.{name}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _selectors(item, f"{path}[{index}]")
