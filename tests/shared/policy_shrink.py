"""The least cluster in which something still holds: parts are left out one after the other, while it does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from antrea.errors import AntreaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policy_cluster import Cluster

WHOLE = frozenset({"metadata", "status"})
"""Fields that stay as they are."""
KEPT = frozenset({"spec", "nodeName", "podCIDR", "podCIDRs", "action", "priority"})
"""Fields without which an object would be none that there can be."""
Place = tuple[str | int, ...]


def least(found: Cluster, holds: Callable[[Cluster], bool]) -> Cluster:
    """`found` without all that can be left out. What is refused, or fails, does not hold."""
    before = None
    while before != found:
        before = found
        for place in places(found):
            smaller = without(found, place)
            if smaller is not None and _tried(holds, smaller):
                found = smaller
    return found


def _tried(holds: Callable[[Cluster], bool], found: Cluster) -> bool:
    try:
        return holds(found)
    except (AntreaError, LookupError, AssertionError, ValueError):
        return False


def places(found: Any, place: Place = ()) -> Iterator[Place]:
    """Of all parts, large ones before what is in them, the last of a list first."""
    if isinstance(found, dict):
        for key in found:
            if key not in WHOLE:
                if place and key not in KEPT:
                    yield (*place, key)
                yield from places(found[key], (*place, key))
    elif isinstance(found, list):
        for number in reversed(range(len(found))):
            yield (*place, number)
            yield from places(found[number], (*place, number))


def without(found: Cluster, place: Place) -> Cluster | None:
    """A copy that lacks the part; None if it is gone already."""
    made = copy.deepcopy(found)
    part: Any = made
    try:
        for step in place[:-1]:
            part = part[step]
        del part[place[-1]]
    except (LookupError, TypeError):
        return None
    return made
