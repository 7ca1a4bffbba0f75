"""Node policies in the agent.

parity: pkg/agent/controller/networkpolicy/node_reconciler_linux.go; upstream uses iptables and ipset
"""

from __future__ import annotations

from antrea.facts.api_server import ApiServerEndpoint
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.network_policy.agent.node_target import GATE
from antrea.features.node_policy.guard import WATCHED
from antrea.features.node_policy.statistics import COUNTED, STATISTICS_GATE
from antrea.features.node_policy.unit import UNITS
from antrea.openflow.cookie import Category

FEATURE = AgentFeature(
    name="NodePolicy",
    units=UNITS,
    watched=(WATCHED,),
    gate=GATE,
    within="AntreaPolicy",
    category=Category.NETWORK_POLICY,
    sweep_after=(ApiServerEndpoint,),
    replay_after=(ApiServerEndpoint,),
)
STATISTICS = AgentFeature(name="NodePolicyStats", gate=STATISTICS_GATE, within=GATE, counted=COUNTED)
FEATURES = (FEATURE, STATISTICS)
