"""Which features the switch has the means for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.agent.api.view import Dumper
    from antrea.features.framework.agent_feature import AgentFeature

log = klog.logger(__name__)

_METERS = re.compile(r"^max_meter:(\d+)")


async def supported_features(features: tuple[AgentFeature, ...], ofctl: Dumper) -> tuple[AgentFeature, ...]:
    """Those that the switch can do; it is asked if there are any that need something. Raises Unavailable."""
    if not any(feature.meters for feature in features) or await most_meters(ofctl):
        return features
    lost = [feature.name for feature in features if feature.meters]
    log.warning("The datapath has no meters: features that need them are off", features=lost)
    return tuple(feature for feature in features if not feature.meters)


async def most_meters(ofctl: Dumper) -> int:
    """How many the datapath can have; 0: none, or its kernel's are broken (before Linux 4.18). Raises Unavailable."""
    async for line in ofctl.lines("meter-features"):
        if found := _METERS.match(line):
            return int(found[1])
    return 0
