"""Features that the switch supports."""

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
    """Return the features that the switch supports; it is queried only if a feature has a requirement. Raises Unavailable."""
    if not any(feature.meters for feature in features) or await most_meters(ofctl):
        return features
    lost = [feature.name for feature in features if feature.meters]
    log.warning("The datapath has no meters: features that need them are off", features=lost)
    return tuple(feature for feature in features if not feature.meters)


async def most_meters(ofctl: Dumper) -> int:
    """Return how many meters the datapath supports; 0 if none, or if its kernel's are broken (before Linux 4.18). Raises
    Unavailable.
    """
    async for line in ofctl.lines("meter-features"):
        if limit := _METERS.match(line):
            return int(limit[1])
    return 0
