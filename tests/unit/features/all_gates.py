"""A Node whose agent has all built gates on, with two Pods and nothing that features would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policy_world import CONFIG, NODE, interface

from antrea.agent.feature_set import active, pipeline_of
from antrea.facts.node import LocalLink, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import GATES, EnabledGates

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

GATES_ON = frozenset(gate.name for gate in GATES if gate.built)
FEATURES = active(GATES_ON)
PIPELINE = pipeline_of(FEATURES, CONFIG, NODE)
PODS = (interface("web", 5), interface("db", 6))
HERE: tuple[Fact, ...] = (
    CONFIG,
    NODE,
    EnabledGates("agent", GATES_ON),
    RealizedPipeline(PIPELINE),
    Transport("eth0", "eth0", "0a:00:00:00:00:02", 1500, ("192.0.2.1/24",)),
    LocalLink("eth0", 2),
    OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01"),
    OvsPort("antrea-tun0", "tunnel", 1, ""),
    *PODS,
)
