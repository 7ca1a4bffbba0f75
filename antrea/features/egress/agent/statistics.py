"""What Pods of this Node sent through each Egress: counters of the flows that give them its address.

Every packet passes one of these flows, at the Node of its Pod, whichever Node translates it; the flows by which the
Egress Node takes what comes by tunnel are of addresses, which Egresses share. Beyond upstream, which counts none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.controlplane import NetworkPolicyReference
from antrea.apis.stats import TrafficStats
from antrea.facts.egress import Egress
from antrea.facts.ovs import PodInterface
from antrea.features.egress.agent.multi_address import egresses_of
from antrea.features.framework.traffic import EGRESS, Counted, Share, rise
from antrea.openflow.priority import Priority
from antrea.openflow.tables import EGRESS_MARK

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.traffic import SeenCounters
    from antrea.openflow.flow_count import FlowCount


def owner(facts: Facts, found: FlowCount) -> str:
    """Name and UID of the Egress, and the Pod's interface; empty: it is no flow of a Pod with an Egress."""
    if found.priority != Priority.NORMAL or found.port is None:
        return ""
    for pod in facts.by(PodInterface, "ofport", found.port):
        for version6, egress in egresses_of(facts, pod.pod):
            if version6 == found.ipv6:
                return f"{egress.name} {egress.uid} {pod.name}"
    return ""


def increase(found: FlowCount, whose: str, before: SeenCounters | None) -> TrafficStats:
    """What the Pod sent since the last look, by whichever Egress then: one that takes another's place takes its flow."""
    if found.drops:
        return TrafficStats()
    same = before and (not before.owner or _pod(before.owner) == _pod(whose))
    return rise(found, before if same else None)


def _pod(whose: str) -> str:
    return whose.rpartition(" ")[2]


def shares(_: Facts, whose: str) -> tuple[Share, ...]:
    """Its Egress."""
    name, uid, _pod = whose.split(" ")
    return (Share(NetworkPolicyReference(type=EGRESS, name=name, uid=uid), ""),)


def there(facts: Facts, share: Share) -> bool:
    """Not if there is only a later one of the same name."""
    return any(row.uid == share.policy.uid for row in facts.by(Egress, "name", share.policy.name))


COUNTED = Counted((EGRESS_MARK.name,), owner, increase, shares, there)
