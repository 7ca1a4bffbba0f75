"""What this Node reports of Egresses: that it has their address, or that none has.

parity: pkg/agent/controller/egress/egress_controller.go updateEgressStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Act
from antrea.facts.egress import EgressMark, EgressOwner
from antrea.facts.member import GossipMember
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.address import HELD_ADDRESSES
from antrea.features.egress.allocated import why_unallocated
from antrea.features.egress.bandwidth import limit_conditions
from antrea.features.egress.duplicate_address import CONFLICT, conflict_conditions
from antrea.features.egress.failback import failback_conditions
from antrea.features.egress.gateway_reachability import gateway_conditions
from antrea.features.egress.handover import assigned_here, awaits_announcement
from antrea.features.egress.missing import reported_missing, reporting_node
from antrea.features.egress.snat_mark import MOST
from antrea.features.external_ip_pool.duplicate import other_host, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress

EGRESSES: Final = "/apis/crd.antrea.io/v1beta1/egresses"
IP_ASSIGNED: Final = "IPAssigned"
ASSIGNED: Final = Condition(
    IP_ASSIGNED, "True", reason="Assigned", message="EgressIP is successfully assigned to EgressNode"
)

STALE: Final = Condition("Stale")
"""There is none of this type: an entry with it differs from the one before, and so is written once more."""
FULL: Final = f"translates {MOST} Egress IPs already, as many as there are marks: its Pods get no packet out"


class RecordAssignmentFailed(Act, frozen=True):
    """Report in an Event of the Egress that no Node holds or translates its address."""

    egress: str
    uid: str
    node: str
    message: str


def egress_status(facts: Facts, egress: Egress) -> Iterator[Status | RecordAssignmentFailed]:
    """Of an Egress of one address, only if that is on this Node; with a pool, only if this Node is to hold it, or if none can."""
    node = facts.get(ThisNode)
    if node is None or egress.of:
        return
    if why := reported_missing(facts, egress, node):
        yield from nowhere(egress, node.name, why)
    elif egress.ip and not why_unallocated(facts, egress):
        yield from _address_status(facts, egress, node)


def _address_status(
    facts: Facts, egress: Egress, node: ThisNode
) -> Iterator[Status | RecordAssignmentFailed]:
    here = facts.get(LocalAddress, egress.ip) is not None
    limits = limit_conditions(facts, egress, node.name) if here else ()
    if here and facts.get(EgressMark, egress.ip) is None:
        if not egress.pool or assigned_here(facts, egress, node):
            yield said(egress, node.name, node.name, failed(why := f"Node {node.name} {FULL}"), *limits)
            yield from failure_event(egress, node.name, why)
        return
    if not egress.pool:
        if here:
            again = (Condition(IP_ASSIGNED),) if egress.failed else ()
            conflict = conflict_conditions(facts, egress) or _of_the_dead(facts, egress)
            yield said(egress, node.name, node.name, *again, *conflict, *limits)
        return
    owner = facts.get(EgressOwner, egress.key)
    if owner is None:
        return
    conflict = conflict_conditions(facts, egress) if owner.node == node.name else ()
    if owner.node == node.name and here and not awaits_announcement(facts, egress, node):
        waits = failback_conditions(facts, egress, owner)
        router = gateway_conditions(facts, egress, node.name)
        stale = (STALE,) if egress.failed else ()
        yield said(egress, node.name, node.name, ASSIGNED, *conflict, *router, *waits, *limits, *stale)
    elif not here and (why := not_taken(facts, egress, node)):
        yield said(egress, node.name, "", failed(why), *conflict)
        yield from failure_event(egress, node.name, why)
    elif not owner.node and reporting_node(facts, egress, node.name) == node.name:
        yield said(egress, node.name, "", failed(owner.why))
        yield from failure_event(egress, node.name, owner.why)


def nowhere(egress: Egress, node: str, why: str) -> Iterator[Status | RecordAssignmentFailed]:
    """No Node has its address, or may use it. A late write of another holder is answered with one more entry."""
    yield Status(
        path=f"{EGRESSES}/{egress.name}",
        kind="Egress",
        manager=f"antrea-agent-{node}",
        fields=holder_fields("", "") if egress.node or egress.held else (),
        conditions=(failed(why),),
        ahead=True,
    )
    yield from failure_event(egress, node, why)


def failure_event(egress: Egress, node: str, why: str) -> Iterator[RecordAssignmentFailed]:
    """Unless the status has it already: an agent that starts anew does not repeat it."""
    message = failed(why).message
    if egress.failed != message:
        yield RecordAssignmentFailed(
            egress.key, why, egress=egress.name, uid=egress.uid, node=node, message=message
        )


def not_taken(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Why an address is not here that this Node is to hold; empty: nothing is known against it."""
    if not assigned_here(facts, egress, node):
        return ""
    if mac := other_host(facts, egress.key, egress.ip):
        return sentence(egress.ip, mac)
    why = facts.refusal(HELD_ADDRESSES, egress.key)
    return f"Node {node.name} cannot take {egress.ip}: {why}" if why else ""


def _of_the_dead(facts: Facts, egress: Egress) -> tuple[Condition, ...]:
    """Of an address that this Node has while the status names one that died: with this the status is written anew."""
    member = facts.get(GossipMember, egress.node) if egress.node else None
    return () if member is None or member.alive else (Condition(CONFLICT),)


def failed(why: str) -> Condition:
    """That no Node can hold an address, or translate it."""
    message = f"Failed to assign the IP to EgressNode: {why}"
    return Condition(IP_ASSIGNED, "False", reason="AssignmentError", message=message)


def said(egress: Egress, node: str, holder: str, *conditions: Condition) -> Status:
    """Conditions of `node`, before those of the controller, as upstream: `holder` has the address; empty: none has."""
    return Status(
        path=f"{EGRESSES}/{egress.name}",
        kind="Egress",
        manager=f"antrea-agent-{node}",
        fields=holder_fields(egress.ip, holder),
        conditions=conditions,
        ahead=True,
    )


def holder_fields(ip: str, node: str) -> tuple[tuple[str, str], ...]:
    """As upstream's status has them."""
    return (("egressNode", node), ("egressIP", ip if node else ""))


def failure(conditions: Iterable[Condition]) -> str:
    """Why no Node holds or translates an address, by its status; empty: no such address."""
    return next((one.message for one in conditions if one.type == IP_ASSIGNED and one.status == "False"), "")
