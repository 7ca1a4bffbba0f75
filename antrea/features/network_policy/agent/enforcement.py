"""Declaration of a feature that enforces policies elsewhere than in the switch, in module `enforcement` of its folder."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from antrea.features import FEATURES
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.received import SentPolicy


class Enforcement(NamedTuple):
    """Results for one policy, by the names of its rules: an element of `ENFORCEMENTS`."""

    failures: Callable[[Facts, SentPolicy], Iterator[tuple[str, str]]]
    """Yield rules that are not enforced, and why."""
    prevented_cuts: Callable[[Facts, str], Iterator[tuple[str, str]]]
    """Yield rules that would cut off the Node, and what they would cut, for the key of a policy."""
    untranslated_rules: Callable[[Facts, str], Iterator[tuple[str, str]]]
    """Yield rules that do not hold at ports of Services, and the ports, for the key of a policy."""


@cache
def enforcements() -> tuple[Enforcement, ...]:
    """Return the declarations of all features."""
    return tuple(
        row
        for rows in declared(FEATURES, "enforcement", Enforcement, "ENFORCEMENTS").values()
        for row in rows
    )
