"""Label selectors, as the API defines them.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.apis.crd.part import LabelSelector, Requirement

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(
    rf"(?=[^/]*$|[^/]{{1,253}}/)([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?{_NAME}"
)
_VALUE = re.compile(f"({_NAME})?")


def fits(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether labels meet all conditions; a selector that is not given has none."""
    if selector is None:
        return True
    exact = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return exact and all(_meets(requirement, labels) for requirement in selector.match_expressions)


@functools.lru_cache(1 << 12)
def _possible(requirement: Requirement) -> bool:
    """Whether a label can have this key and these values; a selector with a condition on others selects nothing."""
    values = requirement.values if requirement.operator in ("In", "NotIn", None) else ()
    return _KEY.fullmatch(requirement.key) is not None and all(map(_VALUE.fullmatch, values))


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    if not _possible(requirement):
        return False
    if requirement.operator in ("Exists", "DoesNotExist"):
        return (requirement.key in labels) == (requirement.operator == "Exists")
    if requirement.operator == "NotIn":
        return labels.get(requirement.key) not in requirement.values
    return requirement.key in labels and labels[requirement.key] in requirement.values


def format_selector(selector: LabelSelector) -> str:
    """Format a selector as kubectl does: `app=web,tier in (a,b),!canary`; `all` if it has no condition."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for requirement in selector.match_expressions:
        if requirement.operator in ("Exists", "DoesNotExist"):
            parts.append(("" if requirement.operator == "Exists" else "!") + requirement.key)
        else:
            parts.append(
                f"{requirement.key} {(requirement.operator or 'In').lower()} ({','.join(requirement.values)})"
            )
    return ",".join(parts) or "all"
