"""Statistics of packets through each Egress: counters of the flows that give Pods' packets its address.

Every packet passes one of these flows, at the Node of its Pod, whichever Node translates it; the flows by which the Egress Node
takes packets from the tunnel are of addresses, which Egresses share. Upstream counts none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.controlplane import NetworkPolicyReference
from antrea.apis.stats import TrafficStats
from antrea.facts.egress import Egress
from antrea.facts.ovs import PodInterface
from antrea.features.egress.agent.multi_address import egresses_of
from antrea.features.framework.traffic import EGRESS, Counted, Share, counter_increase
from antrea.openflow.priority import Priority
from antrea.openflow.tables import EGRESS_MARK

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.traffic import SeenCounters
    from antrea.openflow.flow_count import FlowCount


def owner(facts: Facts, flow: FlowCount) -> str:
    """Return name and UID of the Egress, and the Pod's interface; empty if it is not a flow of a Pod with an Egress."""
    if flow.priority != Priority.NORMAL or flow.port is None:
        return ""
    for pod in facts.by(PodInterface, "ofport", flow.port):
        for version6, egress in egresses_of(facts, pod.pod):
            if version6 == flow.ipv6:
                return f"{egress.name} {egress.uid} {pod.name}"
    return ""


def increase(flow: FlowCount, whose: str, before: SeenCounters | None) -> TrafficStats:
    """Return what the Pod sent since the last look, by any Egress: one that takes another's place takes its flow."""
    if flow.drops:
        return TrafficStats()
    same = before and (not before.owner or _pod(before.owner) == _pod(whose))
    return counter_increase(flow, before if same else None)


def _pod(whose: str) -> str:
    return whose.rpartition(" ")[2]


def shares(_: Facts, whose: str) -> tuple[Share, ...]:
    """Return the share of the Egress."""
    name, uid, _pod = whose.split(" ")
    return (Share(NetworkPolicyReference(type=EGRESS, name=name, uid=uid), ""),)


def there(facts: Facts, share: Share) -> bool:
    """Whether the Egress exists; a later one of the same name is another."""
    return any(row.uid == share.policy.uid for row in facts.by(Egress, "name", share.policy.name))


COUNTED = Counted((EGRESS_MARK.name,), owner, increase, shares, there)
