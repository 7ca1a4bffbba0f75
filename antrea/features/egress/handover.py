"""A move of an Egress IP between two Nodes that live: the next one has it before the one before gives it up.

The next Node takes the address and announces it to its neighbours, then writes the status. By that agents turn their Pods'
packets to it, one after the other, and when all have the Node before drops the address. Until then both translate, and
what answers come to the wrong one go on to the other (reply_relay.py). Of a Node that is dead nothing is awaited.

What holds on the two Nodes of a move from n1 to n2, moment by moment; `*` is an address that is on the Node:

| Moment | EgressOwner | Status | n1 | n2 |
|---|---|---|---|---|
| before | n1 | n1 | * `assigned_here` | |
| placed anew | n2 | n1 | * `next_holder`, `still_held`, `previous_holder` | `assigned_here`, `previous_holder`, `awaits_announcement` |
| taken | n2 | n1 | * `next_holder`, `still_held`, `previous_holder` | * `assigned_here`, `previous_holder`, `awaits_announcement` |
| announced | n2 | n1 | * `next_holder`, `still_held`, `previous_holder` | * `assigned_here`, `previous_holder` |
| written | n2 | n2 | * `next_holder`, `still_held`, `taken_over`, `release` | * `assigned_here` |
| released | n2 | n2 | * `next_holder`, `taken_over` | * `assigned_here` |
| after | n2 | n2 | | * `assigned_here` |

`next_holder` is n2 and `previous_holder` n1 wherever they are; `awaits_announcement` is for the next Node to ask.
`AnnouncedAddress` on n2 begins the moment "announced", `ReleasedAddress` on n1 the moment "released".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act
from antrea.facts.egress import AnnouncedAddress, AssignedAddress, Egress, EgressOwner, ReleasedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class ReleaseAddress(Act, frozen=True):
    """Write, after a moment in which late packets arrive, that this Node gives `ip` up for `to`."""

    egress: str
    ip: str
    to: str


class ConfirmAnnounced(Act, frozen=True):
    """Record, once neighbours had a moment to receive it, that this Node announced `ip`, which `before` hands over."""

    egress: str
    ip: str
    before: str


class RecordUnassigned(Act, frozen=True):
    """Report in an Event of the Egress that this Node holds its address no longer."""

    address: str
    """Key of the AssignedAddress row."""
    egress: str
    uid: str
    ip: str
    node: str


def assigned_here(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node is to hold its address."""
    owner = facts.get(EgressOwner, egress.key) if egress.ip and egress.pool else None
    return owner is not None and owner.node == node.name


def holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """The Node that has the address by its status, and can; empty: none, as far as `node` has received."""
    if not egress.node or egress.held != egress.ip:
        return ""
    if egress.node == node.name:
        return egress.node if facts.get(LocalAddress, egress.ip) else ""
    member = facts.get(GossipMember, egress.node)
    return egress.node if member and (member.alive or member.left) else ""


def previous_holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """The Node that still answers for an address which another is to take; empty: there is none."""
    owner = facts.get(EgressOwner, egress.key) if egress.pool else None
    now = holder(facts, egress, node) if owner and owner.node else ""
    return now if owner and now != owner.node else ""


def awaits_announcement(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether the announcement of an address, which another Node hands over, may not have reached our neighbours yet."""
    before = previous_holder(facts, egress, node)
    return before != "" and facts.get(AnnouncedAddress, egress.key) != AnnouncedAddress(
        egress.key, egress.ip, before
    )


def still_held(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node still has an address that another is to take."""
    taker = next_holder(facts, egress, node)
    if not taker:
        return False
    return egress.node == node.name or not _is_released(facts, egress, taker)


def taken_over(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether another Node has it already, though it still is here, too: our own Pods turn there as all others do."""
    return bool(next_holder(facts, egress, node)) and egress.node != node.name


def release(facts: Facts, egress: Egress, node: ThisNode) -> Iterator[ReleaseAddress]:
    """Once the other one has it."""
    taker = next_holder(facts, egress, node)
    if taker and egress.node == taker and not _is_released(facts, egress, taker):
        yield ReleaseAddress(egress.key, (egress.ip, taker), egress=egress.key, ip=egress.ip, to=taker)


def unassigned_address(facts: Facts, row: AssignedAddress) -> Iterator[RecordUnassigned]:
    """Once an address has gone that its Egress has no longer, or that another Node is to hold."""
    node, egress = facts.get(ThisNode), facts.get(Egress, row.egress)
    if node is None or facts.get(LocalAddress, row.ip):
        return
    if egress and egress.ip == row.ip and assigned_here(facts, egress, node):
        return  # it is put again
    yield RecordUnassigned(
        row.key, row.uid, address=row.key, egress=row.name, uid=row.uid, ip=row.ip, node=node.name
    )


def next_holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """The Node that takes over what this Node has; without a majority it gives up at once, and none does."""
    owner = facts.get(EgressOwner, egress.key) if egress.ip and egress.pool else None
    if owner is None or owner.node in ("", node.name) or egress.held != egress.ip:
        return ""
    quorum, here = facts.get(Quorum), facts.get(LocalAddress, egress.ip)
    names = egress.node in (node.name, owner.node)
    return owner.node if here and names and quorum and quorum.has else ""


def _is_released(facts: Facts, egress: Egress, taker: str) -> bool:
    return facts.get(ReleasedAddress, egress.key) == ReleasedAddress(egress.key, egress.ip, taker)
