"""What this Node says of Egresses: that it has their address.

parity: pkg/agent/controller/egress/egress_controller.go updateEgressStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.facts.egress import EgressMark, EgressOwner
from antrea.facts.lacking import Lacking
from antrea.facts.member import Member, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.address import held_address
from antrea.features.egress.bandwidth import limit_conditions
from antrea.features.egress.duplicate import CONFLICT, conflict_conditions, other_host, sentence
from antrea.features.egress.failback import failback_conditions
from antrea.features.egress.gateway import gateway_conditions
from antrea.features.egress.handover import is_awaited, is_ours
from antrea.features.egress.mark import MOST
from antrea.features.egress.placement import ring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress

EGRESSES: Final = "/apis/crd.antrea.io/v1beta1/egresses"
IP_ASSIGNED: Final = "IPAssigned"
ASSIGNED: Final = Condition(
    IP_ASSIGNED, "True", reason="Assigned", message="EgressIP is successfully assigned to EgressNode"
)

FULL: Final = f"translates {MOST} Egress IPs already, as many as there are marks: its Pods get no packet out"


def egress_status(facts: Facts, egress: Egress) -> Iterator[Status]:
    """Of an Egress of one address, only if that is on this Node; with a pool, only if this Node is to hold it, or if none can."""
    node = facts.get(ThisNode)
    if node is None or not egress.ip or egress.of:
        return
    here = facts.get(LocalAddress, egress.ip) is not None
    limits = limit_conditions(facts, egress, node.name) if here else ()
    if here and facts.get(EgressMark, egress.ip) is None:
        if not egress.pool or is_ours(facts, egress, node):
            yield said(egress, node.name, node.name, failed(f"Node {node.name} {FULL}"), *limits)
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
    if owner.node == node.name and here and not is_awaited(facts, egress, node):
        waits = failback_conditions(facts, egress, owner)
        router = gateway_conditions(facts, egress, node.name)
        yield said(egress, node.name, node.name, ASSIGNED, *conflict, *router, *waits, *limits)
    elif not here and (why := not_taken(facts, egress, node)):
        yield said(egress, node.name, "", failed(why), *conflict)
    elif not owner.node and teller(facts, egress, node.name) == node.name:
        yield said(egress, node.name, "", failed(owner.why))


def not_taken(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Why an address is not here that this Node is to hold; empty: nothing is known against it."""
    if not is_ours(facts, egress, node):
        return ""
    if mac := other_host(facts, egress):
        return sentence(egress.ip, mac)
    lacking = facts.get(Lacking, f"{held_address.__name__} {egress.key}")
    return f"Node {node.name} cannot take {egress.ip}: {lacking.why}" if lacking else ""


def _of_the_dead(facts: Facts, egress: Egress) -> tuple[Condition, ...]:
    """Of an address that this Node has while the status names one that died: with this the status is said anew."""
    member = facts.get(Member, egress.node) if egress.node else None
    return () if member is None or member.alive else (Condition(CONFLICT),)


def failed(why: str) -> Condition:
    """That no Node can hold an address, or translate it."""
    message = f"Failed to assign the IP to EgressNode: {why}"
    return Condition(IP_ASSIGNED, "False", reason="AssignmentError", message=message)


def said(egress: Egress, node: str, holder: str, *conditions: Condition) -> Status:
    """What `node` says: `holder` has the address; empty: none has."""
    return Status(
        path=f"{EGRESSES}/{egress.name}",
        kind="Egress",
        manager=f"antrea-agent-{node}",
        fields=holder_fields(egress.ip, holder),
        conditions=conditions,
    )


def holder_fields(ip: str, node: str) -> tuple[tuple[str, str], ...]:
    """As upstream's status has them."""
    return (("egressNode", node), ("egressIP", ip if node else ""))


def teller(facts: Facts, egress: Egress, me: str) -> str:
    """The one Node that speaks for all, by its place on the ring of those that live; none of a minority does."""
    quorum = facts.get(Quorum)
    if quorum is None or not quorum.has:
        return ""
    alive = {member.node for member in facts.all(Member) if member.alive}
    return ring(frozenset({*alive, me})).pick(egress.ip)
