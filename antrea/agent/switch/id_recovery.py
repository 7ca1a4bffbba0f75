"""Recover the IDs that the switch and the kernel still use from an earlier start, after the ID journal was lost or damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.feature_set import FEATURES
from antrea.errors import Unavailable
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from antrea.agent.api.view import Dumper
    from antrea.engine import Facts
    from antrea.features.framework.agent_feature import AgentFeature
    from antrea.host.route import RoutingRule

log = klog.logger(__name__)


async def reserve_used_ids(
    facts: Facts,
    ofctl: Dumper,
    rules: Iterable[RoutingRule] = (),
    features: Collection[AgentFeature] = FEATURES,
) -> None:
    """Allocate new IDs above those that flows, groups and `rules` of the kernel carry, until these are swept.

    Otherwise an ID would be ambiguous: a packet of one policy would count as another's, one Egress IP would be used for
    another.
    """
    highest: dict[str, int] = {}

    def note(pool: str, number: int) -> None:
        highest[pool] = max(highest.get(pool, 0), number)

    readers = [feature.rule_numbers for feature in features if feature.rule_numbers]
    for pool, number in (used_id for rule in rules for reads in readers for used_id in reads(rule)):
        note(pool, number)
    patterns = [pattern for feature in features for pattern in feature.numbers]
    try:
        for command in ("dump-flows", "dump-groups"):
            async for line in ofctl.lines(command):
                for pattern in patterns:
                    for number in pattern.numbers(line):
                        note(pattern.pool, number)
    except Unavailable as error:
        log.error("Failed to read the IDs in use from the switch; new IDs may collide", error=error)
    start_above = {pool: number for pool, number in highest.items() if number > 0}
    for pool, number in start_above.items():
        facts.ids.start_above(pool, number)
    if start_above:
        log.warning("The ID journal is incomplete; new IDs start above those in use", highest=start_above)
