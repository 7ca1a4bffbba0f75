"""The agent's features, and what has to be known of each before what an earlier start left may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.egress import Egress, EgressPod
from antrea.facts.member import ClusterNode, Member, PoolSelector
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.pod import LocalPod
from antrea.facts.service import Service
from antrea.features.egress import agent as egress
from antrea.features.egress import bandwidth
from antrea.features.egress import owner as egress_placement
from antrea.features.egress import statistics as egress_statistics
from antrea.features.feature import Families
from antrea.features.network_policy import agent as network_policy
from antrea.features.network_policy import statistics as policy_statistics
from antrea.features.network_policy.sent import KINDS
from antrea.features.node_network import agent as node_network
from antrea.features.node_route import agent as node_route
from antrea.features.pod_connectivity import agent as pod_connectivity
from antrea.features.proxy import agent as proxy
from antrea.host.carrier import HOLDER_TYPE
from antrea.host.ovs_port import BFD
from antrea.openflow.cookie import Category
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Collection

    from antrea.config.agent import AgentConfig
    from antrea.facts.fact import Fact
    from antrea.features.feature import AgentFeature

FEATURES: tuple[AgentFeature, ...] = (
    pod_connectivity.FEATURE,
    node_network.FEATURE,
    node_route.FEATURE,
    proxy.FEATURE,
    egress.FEATURE,
    egress_placement.FEATURE,
    bandwidth.FEATURE,
    network_policy.FEATURE,
)
# What must be known before that which an earlier start left may go: all Pods, all Nodes, and what policies say.
SWEEPS: dict[int, tuple[type[Fact], ...]] = {
    int(category): (PodInterface, OvsPort, ClusterNode, ThisNode) for category in Category
}
OWN_PORTS = {int(Category.EGRESS): frozenset({HOLDER_TYPE, BFD})}
"""antrea-types of the ports that the sweep of a category may take away."""
POLICY_KINDS: tuple[type[Fact], ...] = (*KINDS, Service)
SWEEPS[Category.NETWORK_POLICY] += POLICY_KINDS
EGRESS_FLOWS: tuple[type[Fact], ...] = (Egress, EgressPod, LocalAddress, PoolSelector)
"""What flows of Egress are made of, where its gate is on."""
EGRESS_KINDS: tuple[type[Fact], ...] = (*EGRESS_FLOWS, Member)
"""The same as of the others, of Egress."""
COUNTED = {
    policy_statistics.GATE: policy_statistics.COUNTED,
    egress.FEATURE.gate: egress_statistics.COUNTED,
}
"""By gate, what is reported."""
FIRST_ROUND = 1
"""Round of a start that finds no flows of an earlier one."""
FIRST_LISTS: tuple[type[Fact], ...] = (PodInterface, OvsPort, ClusterNode, LocalPod, LocalAddress)


def active(gates: Collection[str]) -> tuple[AgentFeature, ...]:
    """The features that these gates leave on."""
    return tuple(feature for feature in FEATURES if {feature.gate, feature.within} - {""} <= {*gates})


def pipeline_of(features: Collection[AgentFeature], config: AgentConfig, node: ThisNode) -> Pipeline:
    """The tables that the features ask for, numbered for the life of this agent."""
    families = Families.of(node.pod_cidrs)
    return Pipeline.realise(table for feature in features for table in feature.tables(config, families))


def sweeps(gates: Collection[str]) -> dict[int, tuple[type[Fact], ...]]:
    """By category of cookies: kinds that must have been listed before what an earlier start left may go."""
    if egress.FEATURE.gate not in gates:
        return SWEEPS
    return SWEEPS | {int(Category.EGRESS): (*SWEEPS[Category.EGRESS], *EGRESS_KINDS)}


def first_lists(gates: Collection[str], cookie_round: int) -> tuple[type[Fact], ...]:
    """Kinds to wait for before the first replay.

    What the switch has, or the kernel's datapath has of one that ended, is not to be replaced by flows of half the
    policies and without Egresses.
    """
    if cookie_round == FIRST_ROUND:
        return FIRST_LISTS
    return FIRST_LISTS + POLICY_KINDS + (EGRESS_FLOWS if egress.FEATURE.gate in gates else ())
