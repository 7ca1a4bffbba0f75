"""What this Node says of Egresses: that it has their address.

parity: pkg/agent/controller/egress/egress_controller.go updateEgressStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.facts.egress import EgressOwner
from antrea.facts.member import Member, Quorum
from antrea.facts.node import LocalAddress, ThisNode
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


def egress_status(facts: Facts, egress: Egress) -> Iterator[Status]:
    """Only of an address that is on this Node; with a pool, only if this Node is to hold it, or if none can."""
    node = facts.get(ThisNode)
    if node is None or not egress.ip:
        return
    here = facts.get(LocalAddress, egress.ip) is not None
    if not egress.pool:
        if here:
            yield said(egress, node.name, node.name)
        return
    owner = facts.get(EgressOwner, egress.name)
    if owner is None:
        return
    if owner.node == node.name and here:
        yield said(egress, node.name, node.name, ASSIGNED)
    elif not owner.node and teller(facts, egress, node.name) == node.name:
        why = f"Failed to assign the IP to EgressNode: {owner.why}"
        yield said(
            egress, node.name, "", Condition(IP_ASSIGNED, "False", reason="AssignmentError", message=why)
        )


def said(egress: Egress, node: str, holder: str, *conditions: Condition) -> Status:
    """What `node` says: `holder` has the address; empty: none has."""
    return Status(
        path=f"{EGRESSES}/{egress.name}",
        kind="Egress",
        manager=f"antrea-agent-{node}",
        fields=(("egressNode", holder), ("egressIP", egress.ip if holder else "")),
        conditions=conditions,
    )


def teller(facts: Facts, egress: Egress, me: str) -> str:
    """The one Node that speaks for all, by its place on the ring of those that live; none of a minority does."""
    quorum = facts.get(Quorum)
    if quorum is None or not quorum.has:
        return ""
    alive = {member.node for member in facts.all(Member) if member.alive}
    return ring(frozenset({*alive, me})).pick(egress.ip)
