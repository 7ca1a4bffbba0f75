"""The agent's features, and what follows from their declarations: which are on, their tables, and the lists to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import NODE_TYPE
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.pod import LocalPod
from antrea.features import FEATURES as FOLDERS
from antrea.features.framework.agent_feature import AgentFeature, Families
from antrea.features.framework.gate import is_opened
from antrea.features.framework.plug import declared
from antrea.openflow.cookie import Category
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from antrea.config.agent import AgentConfig, NodeType
    from antrea.facts.fact import Fact

BY_FOLDER: Mapping[str, tuple[AgentFeature, ...]] = declared(FOLDERS, "agent", AgentFeature)
"""Features of the agent by folder."""
FEATURES: tuple[AgentFeature, ...] = tuple(feature for features in BY_FOLDER.values() for feature in features)
FIRST_ROUND = 1
"""Round of a start that finds no flows of an earlier one."""
SWEEP_KINDS: tuple[type[Fact], ...] = (PodInterface, OvsPort, AgentNode, ThisNode)
"""Kinds that must be listed before entries of an earlier start may be swept: all Pods and all Nodes."""
FIRST_LISTS: tuple[type[Fact], ...] = (PodInterface, OvsPort, AgentNode, LocalPod, LocalAddress)


def is_on(feature: AgentFeature, gates: Collection[str]) -> bool:
    """Whether these gates leave the feature on."""
    return is_opened(feature.gate, gates) and is_opened(feature.within, gates) and feature.unless not in gates


def active(
    gates: Collection[str], features: Collection[AgentFeature] = FEATURES, node_type: NodeType = NODE_TYPE
) -> tuple[AgentFeature, ...]:
    """Select the features that these gates leave on, on a Node or on a machine outside the cluster."""
    return tuple(feature for feature in features if node_type in feature.runs_on and is_on(feature, gates))


def folders_on(gates: Collection[str], node_type: NodeType = NODE_TYPE) -> frozenset[str]:
    """Return the names of the folders with at least one feature that is on."""
    return frozenset(name for name, features in BY_FOLDER.items() if active(gates, features, node_type))


def pipeline_of(features: Collection[AgentFeature], config: AgentConfig, node: ThisNode) -> Pipeline:
    """Build the tables that the features need, numbered for the life of this agent."""
    families = Families(ipv4=False in node.families, ipv6=True in node.families)
    return Pipeline.realize(table for feature in features for table in feature.tables_of(config, families))


def sweeps(features: Collection[AgentFeature]) -> dict[int, tuple[type[Fact], ...]]:
    """Map each category of cookies to the kinds that must be listed before entries of an earlier start may be swept."""
    kinds = {int(category): SWEEP_KINDS for category in Category}
    for feature in features:
        if feature.category is not None:
            kinds[feature.category] += feature.sweep_after
    return kinds


def own_ports(features: Collection[AgentFeature] = FEATURES) -> dict[int, frozenset[str]]:
    """Map each category to the antrea-types of the ports that its sweep may remove, also for features that are off."""
    port_types: dict[int, frozenset[str]] = {}
    for feature in features:
        if feature.category is not None and feature.own_ports:
            port_types[feature.category] = port_types.get(feature.category, frozenset()) | feature.own_ports
    return port_types


def first_lists(features: Collection[AgentFeature], cookie_round: int) -> tuple[type[Fact], ...]:
    """Return the kinds to wait for before the first replay.

    Existing flows, or those that the kernel's datapath has of a switch that ended, must not be replaced by flows of half the
    policies and without Egresses.
    """
    if cookie_round == FIRST_ROUND:
        return FIRST_LISTS
    return FIRST_LISTS + tuple(dict.fromkeys(kind for feature in features for kind in feature.replay_after))
