"""NodeLatencyMonitor in the agent: which addresses are measured; the part measures and reports."""

from __future__ import annotations

from antrea.engine import Unit
from antrea.facts.node import PeerNode
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.node_latency.monitor import WATCHED
from antrea.features.node_latency.target import LatencyTarget, latency_targets

GATE = "NodeLatencyMonitor"
FEATURE = AgentFeature(
    name=GATE,
    gate=GATE,
    units=(Unit(PeerNode, latency_targets, yields=(LatencyTarget,)),),
    watched=(WATCHED,),
)
FEATURES = (FEATURE,)
