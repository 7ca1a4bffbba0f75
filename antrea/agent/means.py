"""Which features the switch has the means for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from antrea.outside import klog

if TYPE_CHECKING:
    from antrea.agent.agent_view import Dumper
    from antrea.features.feature import AgentFeature

log = klog.logger(__name__)

_METERS = re.compile(r"^max_meter:(\d+)")


async def within_means(features: tuple[AgentFeature, ...], ofctl: Dumper) -> tuple[AgentFeature, ...]:
    """Those that the switch can do; it is asked if there are any that need something. Raises Unavailable."""
    if not any(feature.meters for feature in features) or await most_meters(ofctl):
        return features
    log.warning("The datapath has no meters: the bandwidth of Egresses is not limited")
    return tuple(feature for feature in features if not feature.meters)


async def most_meters(ofctl: Dumper) -> int:
    """How many the datapath can have; 0: none, or its kernel's are broken (before Linux 4.18). Raises Unavailable."""
    async for line in ofctl.lines("meter-features"):
        if found := _METERS.match(line):
            return int(found[1])
    return 0
