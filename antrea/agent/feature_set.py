"""The agent's features, and what follows from their declarations: which are on, their tables, and what is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.pod import LocalPod
from antrea.features import FEATURES as FOLDERS
from antrea.features.framework.agent_feature import AgentFeature, Families, NodeType
from antrea.features.framework.gate import opened
from antrea.features.framework.plug import declared
from antrea.openflow.cookie import Category
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from antrea.config.agent import AgentConfig
    from antrea.facts.fact import Fact

BY_FOLDER: Mapping[str, tuple[AgentFeature, ...]] = declared(FOLDERS, "agent", AgentFeature)
"""What each folder of features declares to the agent."""
FEATURES: tuple[AgentFeature, ...] = tuple(one for found in BY_FOLDER.values() for one in found)
FIRST_ROUND = 1
"""Round of a start that finds no flows of an earlier one."""
SWEEP_KINDS: tuple[type[Fact], ...] = (PodInterface, OvsPort, AgentNode, ThisNode)
"""What must be known before anything that an earlier start left may go: all Pods and all Nodes."""
FIRST_LISTS: tuple[type[Fact], ...] = (PodInterface, OvsPort, AgentNode, LocalPod, LocalAddress)


def is_on(feature: AgentFeature, gates: Collection[str]) -> bool:
    """Whether these gates leave the feature on."""
    return opened(feature.gate, gates) and opened(feature.within, gates) and feature.unless not in gates


def active(
    gates: Collection[str], features: Collection[AgentFeature] = FEATURES, node_type: NodeType = "k8sNode"
) -> tuple[AgentFeature, ...]:
    """The features that these gates leave on, on a Node or on a machine outside the cluster."""
    return tuple(feature for feature in features if node_type in feature.runs_on and is_on(feature, gates))


def folders_on(gates: Collection[str], node_type: NodeType = "k8sNode") -> frozenset[str]:
    """Names of the folders of which these gates leave anything on."""
    return frozenset(name for name, found in BY_FOLDER.items() if active(gates, found, node_type))


def pipeline_of(features: Collection[AgentFeature], config: AgentConfig, node: ThisNode) -> Pipeline:
    """The tables that the features ask for, numbered for the life of this agent."""
    families = Families(ipv4=False in node.families, ipv6=True in node.families)
    return Pipeline.realize(table for feature in features for table in feature.tables_of(config, families))


def sweeps(features: Collection[AgentFeature]) -> dict[int, tuple[type[Fact], ...]]:
    """By category of cookies: kinds that must have been listed before what an earlier start left may go."""
    found = {int(category): SWEEP_KINDS for category in Category}
    for feature in features:
        if feature.category is not None:
            found[feature.category] += feature.sweep_after
    return found


def own_ports(features: Collection[AgentFeature] = FEATURES) -> dict[int, frozenset[str]]:
    """By category: antrea-types of the ports that its sweep may take away, also of features that are off by now."""
    found: dict[int, frozenset[str]] = {}
    for feature in features:
        if feature.category is not None and feature.own_ports:
            found[feature.category] = found.get(feature.category, frozenset()) | feature.own_ports
    return found


def first_lists(features: Collection[AgentFeature], cookie_round: int) -> tuple[type[Fact], ...]:
    """Kinds to wait for before the first replay.

    What the switch has, or the kernel's datapath has of one that ended, is not to be replaced by flows of half the
    policies and without Egresses.
    """
    if cookie_round == FIRST_ROUND:
        return FIRST_LISTS
    return FIRST_LISTS + tuple(dict.fromkeys(kind for feature in features for kind in feature.replay_after))
