"""Flow counters: their owners, their increase, and the report that a Node makes of it."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.controlplane import NetworkPolicyReference  # noqa: TC001 (msgspec reads it)
from antrea.apis.controlplane_report import NetworkPolicyStats, NodeStatsSummary
from antrea.apis.meta import ObjectMetadata
from antrea.apis.stats import RuleTrafficStats, TrafficStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from antrea.engine import Facts
    from antrea.openflow.flow_count import FlowCount

KUBERNETES, CLUSTER, NAMESPACED = "K8sNetworkPolicy", "AntreaClusterNetworkPolicy", "AntreaNetworkPolicy"
EGRESS = "Egress"
"""Name of the type in traces, as upstream has it."""
KINDS = (KUBERNETES, CLUSTER, NAMESPACED, EGRESS)
WHOLE = (KUBERNETES, EGRESS)
"""Types that are counted as a whole, without rule names."""


class SeenCounters(NamedTuple):
    """Counters of a flow at the last look."""

    packets: int
    bytes: int
    owner: str
    """Owner of the flow; empty if unknown."""


class Share(NamedTuple):
    """Counted object: a policy or an Egress, and the policy's rule by name; Kubernetes policies and Egresses name none."""

    policy: NetworkPolicyReference
    rule: str


class Counted(NamedTuple):
    """Declaration of what a feature counts, and how to read it."""

    tables: tuple[str, ...]
    """Tables where packets are counted."""
    owner: Callable[[Facts, FlowCount], str]
    """Return the owner of a flow of these tables; empty if none, or not found yet."""
    increase: Callable[[FlowCount, str, SeenCounters | None], TrafficStats]
    """Return what a flow of this owner has counted since it was seen."""
    shares: Callable[[Facts, str], Iterable[Share]]
    """Return the counted objects of an owner's flows."""
    there: Callable[[Facts, Share], bool]
    """Whether the counted object still exists."""
    counters: bool = False
    """Whether named counters of nftables are used, which are read as flows by their names."""


def counter_increase(flow: FlowCount, before: SeenCounters | None) -> TrafficStats:
    """Return packets and bytes since the last look; all of them if the flow is new (None) or its counters were reset."""
    if before and flow.packets >= before.packets and flow.bytes >= before.bytes:
        return TrafficStats(packets=flow.packets - before.packets, bytes=flow.bytes - before.bytes)
    return TrafficStats(packets=flow.packets, bytes=flow.bytes)


def summary(node: str, counted: Mapping[Share, TrafficStats]) -> NodeStatsSummary:
    """Make the report of a Node: totals of Kubernetes' policies and of Egresses, rule by rule of Antrea's own policies."""
    rows = {kind: tuple(_rows(counted, kind)) for kind in KINDS}
    return NodeStatsSummary(
        metadata=ObjectMetadata(name=node),
        network_policies=rows[KUBERNETES],
        antrea_cluster_network_policies=rows[CLUSTER],
        antrea_network_policies=rows[NAMESPACED],
        egresses=rows[EGRESS],
    )


def _rows(counted: Mapping[Share, TrafficStats], kind: str) -> Iterator[NetworkPolicyStats]:
    by_policy: dict[NetworkPolicyReference, list[tuple[str, TrafficStats]]] = {}
    for share, total in counted.items():
        if share.policy.type == kind:
            by_policy.setdefault(share.policy, []).append((share.rule, total))
    for policy in sorted(by_policy, key=lambda policy: (policy.namespace, policy.name, policy.uid)):
        by_rule = by_policy[policy]
        if kind in WHOLE:
            whole = sum((traffic for _, traffic in by_rule), TrafficStats())
            yield NetworkPolicyStats(network_policy=policy, traffic_stats=whole)
        else:
            rules = (
                RuleTrafficStats(name=name, traffic_stats=traffic)
                for name, traffic in sorted(by_rule, key=itemgetter(0))
            )
            yield NetworkPolicyStats(network_policy=policy, rule_traffic_stats=tuple(rules))
