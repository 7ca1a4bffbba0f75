"""Networks in which neighbors do not answer this Node: all agents give their addresses to other Nodes, as long as there are
any.

Features derive `SilentNetwork`. The Node reports all of them by gossip, which needs no kube-apiserver, and in an annotation of
its Node object, which outlives the agent. A report by gossip is the newer one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from antrea.apis.annotation import SILENT_SUBNETS, NodeAnnotation
from antrea.engine import Act
from antrea.facts.member import AgentNode, PoolSelector, SilenceReport, SilentNetwork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode


class ReportSilence(Act, frozen=True):
    """Report the silent networks of this Node to all agents, as they are once the pass is over."""


def silent_networks(facts: Facts, node: AgentNode) -> tuple[str, ...]:
    """Return the silent networks by name."""
    report = facts.get(SilenceReport, node.name)
    return report.networks if report else node.silent


def found_silent(facts: Facts) -> tuple[str, ...]:
    """Names of the networks that are silent for this Node now."""
    return tuple(sorted(row.name for row in facts.all(SilentNetwork)))


def silence_of(facts: Facts, node: AgentNode, pool: PoolSelector) -> str:
    """Return the name of a network of the pool that is silent for the Node; empty if none."""
    networks = silent_networks(facts, node)
    if pool.subnet:
        return pool.subnet if pool.subnet in networks else ""
    return next((name for name in networks if _is_of(name, pool)), "")


def _is_of(name: str, pool: PoolSelector) -> bool:
    # a Node may write any text into its annotation, and names of subnets of pools are no CIDRs
    with contextlib.suppress(ValueError):
        return pool.reaches(name)
    return False


def silence_report(facts: Facts, node: ThisNode) -> Iterator[NodeAnnotation | ReportSilence]:
    """Yield the report of this Node, once its earlier report and its pools are known."""
    # whether pools were listed makes no unit run again; a pool that comes does
    facts.all(PoolSelector)
    if facts.get(AgentNode, node.name) is None or not facts.feeds.has(PoolSelector):
        return
    names = found_silent(facts)
    yield NodeAnnotation(node.name, SILENT_SUBNETS, ",".join(names))
    yield ReportSilence(node.name, names)
