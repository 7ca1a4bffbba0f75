"""Counters of flows: whose they are, by what they rose, and the report that a Node makes of it."""

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
"""As upstream names it where a packet's way is shown."""
KINDS = (KUBERNETES, CLUSTER, NAMESPACED, EGRESS)
WHOLE = (KUBERNETES, EGRESS)
"""Of which no rules are named."""


class SeenCounters(NamedTuple):
    """A flow's counters when it was last looked at."""

    packets: int
    bytes: int
    owner: str
    """Whose it was; empty: unknown."""


class Share(NamedTuple):
    """Who counts: a policy or an Egress, and the policy's rule by name; Kubernetes and an Egress name none."""

    policy: NetworkPolicyReference
    rule: str


class Counted(NamedTuple):
    """What a feature has counted, and how to read it."""

    tables: tuple[str, ...]
    """Where its packets are counted."""
    owner: Callable[[Facts, FlowCount], str]
    """Whose a flow of these tables is; empty: none's, or not found yet."""
    increase: Callable[[FlowCount, str, SeenCounters | None], TrafficStats]
    """What a flow of this owner has counted since it was seen."""
    shares: Callable[[Facts, str], Iterable[Share]]
    """Who counts what an owner's flows counted."""
    there: Callable[[Facts, Share], bool]
    """Whether what counts exists still."""
    counters: bool = False
    """Whether it counts by named counters of nftables, which are read as flows by their names."""


def rise(found: FlowCount, before: SeenCounters | None) -> TrafficStats:
    """Packets and bytes since the last look; all of them if it is another flow (None) or has begun anew."""
    if before and found.packets >= before.packets and found.bytes >= before.bytes:
        return TrafficStats(packets=found.packets - before.packets, bytes=found.bytes - before.bytes)
    return TrafficStats(packets=found.packets, bytes=found.bytes)


def summary(node: str, counted: Mapping[Share, TrafficStats]) -> NodeStatsSummary:
    """The report of a Node: totals of Kubernetes' policies and of Egresses, rule by rule of Antrea's own policies."""
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
    for share, found in counted.items():
        if share.policy.type == kind:
            by_policy.setdefault(share.policy, []).append((share.rule, found))
    for policy in sorted(by_policy, key=lambda policy: (policy.namespace, policy.name, policy.uid)):
        own = by_policy[policy]
        if kind in WHOLE:
            whole = sum((one for _, one in own), TrafficStats())
            yield NetworkPolicyStats(network_policy=policy, traffic_stats=whole)
        else:
            rules = (
                RuleTrafficStats(name=name, traffic_stats=one) for name, one in sorted(own, key=itemgetter(0))
            )
            yield NetworkPolicyStats(network_policy=policy, rule_traffic_stats=tuple(rules))
