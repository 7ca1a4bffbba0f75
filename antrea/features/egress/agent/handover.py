"""A move of an Egress IP between two Nodes that live: the next one has it before the one before gives it up.

The next Node takes the address and announces it to its neighbours, then writes the status. By that agents turn their Pods'
packets to it, one after the other. The Node before drops the address as soon as the status names the next, and translates what
packets still come to it for another moment: for that it needs the rules and the way out, not the address. What answers come to
the wrong one are passed on to the other (reply_relay.py). Of a Node that is dead nothing is awaited.

Which state the address is in on the two Nodes of a move from n1 to n2 (handover_state.py), moment by moment; `*` is an
address that is on the Node:

| Moment | EgressOwner | Status | n1 | n2 |
|---|---|---|---|---|
| before | n1 | n1 | * ASSIGNED | ELSEWHERE |
| placed anew | n2 | n1 | * KEEPING | TAKING |
| taken | n2 | n1 | * KEEPING | * TAKING |
| announced | n2 | n1 | * KEEPING | * ANNOUNCED |
| written | n2 | n2 | * TAKEN_OVER | * ASSIGNED |
| released | n2 | n2 | RELEASED | * ASSIGNED |
| after | n2 | n2 | ELSEWHERE | * ASSIGNED |

`AnnouncedAddress` on n2 begins the moment "announced", `ReleasedAddress` on n1 the moment "released",
which ends when that row is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act
from antrea.facts.egress import AssignedAddress, Egress
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.handover_state import HandoverState, assigned_here, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class ReleaseAddress(Act, frozen=True):
    """Record, immediately, that this Node hands `ip` over to `to`; removed when late packets had time to arrive."""

    egress: str
    ip: str
    to: str


class ConfirmAnnounced(Act, frozen=True):
    """Record, once neighbours had a moment to receive it, that this Node announced `ip`, which `before` hands over."""

    egress: str
    ip: str
    before: str


class RecordUnassigned(Act, frozen=True):
    """Event that this Node no longer holds the address of an Egress."""

    address: str
    """Key of the AssignedAddress row."""
    egress: str
    uid: str
    ip: str
    node: str


def release(facts: Facts, egress: Egress, node: ThisNode) -> Iterator[ReleaseAddress]:
    """Yield the release once the other Node has it."""
    if state_of(facts, egress, node) is HandoverState.TAKEN_OVER:
        taker = egress.node
        yield ReleaseAddress(egress.key, (egress.ip, taker), egress=egress.key, ip=egress.ip, to=taker)


def unassigned_address(facts: Facts, row: AssignedAddress) -> Iterator[RecordUnassigned]:
    """Yield an Event once an address is gone that its Egress does not have any more, or that another Node is to hold."""
    node, egress = facts.get(ThisNode), facts.get(Egress, row.egress)
    if node is None or facts.get(LocalAddress, row.ip):
        return
    if egress and egress.ip == row.ip and assigned_here(facts, egress, node):
        return  # it is put again
    yield RecordUnassigned(
        row.key, row.uid, address=row.key, egress=row.name, uid=row.uid, ip=row.ip, node=node.name
    )
