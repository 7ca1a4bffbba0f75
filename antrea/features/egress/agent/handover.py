"""A move of an Egress IP between two Nodes that live: the next one has it before the one before gives it up.

The next Node takes the address and announces it to its neighbours, then writes the status. By that agents turn their Pods'
packets to it, one after the other. The Node before drops the address as soon as the status names the next, and translates what
packets still come to it for another moment: for that it needs the rules and the way out, not the address. What answers come to
the wrong one are passed on to the other (reply_relay.py). Of a Node that is dead nothing is awaited.

State of the address on the two Nodes of a move from n1 to n2, moment by moment; `*` is an address that is on the Node:

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
which ends when that row is dropped. docs/egress.md has the table of transitions for readers; a test holds both against
`state_of`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.engine import Act
from antrea.facts.egress import AnnouncedAddress, AssignedAddress, Egress, EgressOwner, ReleasedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.fact import Fact


class HandoverState(Enum):
    """Relation of an address to this Node."""

    ELSEWHERE = "another Node is to hold it, or none, and this one has nothing to hand over"
    TAKING = "this Node is to hold it; another one has it, and keeps it until ours is announced"
    ANNOUNCED = "as `TAKING`, and neighbours have received the announcement: Pods' packets may turn here"
    ASSIGNED = "this Node is to hold it, and no other one that lives has it"
    KEEPING = "another Node is to hold it, and this one keeps it until that has it"
    TAKEN_OVER = "another Node has it; this one is about to drop it"
    RELEASED = "another Node has it; this one drops it, and still translates late packets"


class Transition(NamedTuple):
    """How an address passes from one state to another."""

    before: HandoverState
    after: HandoverState
    by: type[Fact]
    """The kind of fact that changes."""
    when: str


def _transitions() -> Iterator[Transition]:
    state = HandoverState
    yield Transition(
        state.ELSEWHERE, state.ASSIGNED, EgressOwner, "placed here, and no Node that lives has it"
    )
    yield Transition(state.ELSEWHERE, state.TAKING, EgressOwner, "placed here while a Node that lives has it")
    yield Transition(
        state.TAKING, state.ANNOUNCED, AnnouncedAddress, "neighbours had time for the announcement"
    )
    yield Transition(state.ANNOUNCED, state.ASSIGNED, Egress, "the status names this Node")
    for before in (state.TAKING, state.ANNOUNCED):
        yield Transition(before, state.ASSIGNED, GossipMember, "the Node that has it dies")
    yield Transition(state.ASSIGNED, state.KEEPING, EgressOwner, "placed on another Node")
    yield Transition(state.ASSIGNED, state.ELSEWHERE, EgressOwner, "no Node is to hold it, or it is not here")
    yield Transition(state.KEEPING, state.TAKEN_OVER, Egress, "the status names the other Node")
    yield Transition(state.TAKEN_OVER, state.RELEASED, ReleasedAddress, "the agent has noted it, at once")
    yield Transition(state.RELEASED, state.ELSEWHERE, ReleasedAddress, "late packets had time to arrive")
    yield Transition(state.KEEPING, state.ASSIGNED, EgressOwner, "placed here again")
    for before in (state.TAKEN_OVER, state.RELEASED):
        yield Transition(before, state.TAKING, EgressOwner, "placed here again")
    for before in (state.KEEPING, state.TAKEN_OVER):
        yield Transition(before, state.ELSEWHERE, LocalAddress, "the address is removed")
    for before in (state.KEEPING, state.TAKEN_OVER, state.RELEASED):
        yield Transition(
            before, state.ELSEWHERE, Quorum, "the majority is lost, and the address given up at once"
        )


TRANSITIONS: Final = tuple(_transitions())

USABLE: Final = (HandoverState.ASSIGNED, HandoverState.ANNOUNCED)
"""States in which Pods' packets may be sent here, once the address is."""
STILL_HELD: Final = (HandoverState.KEEPING, HandoverState.TAKEN_OVER)
"""States in which the address stays, though another Node is to hold it."""
PASSED_ON: Final = (HandoverState.TAKEN_OVER, HandoverState.RELEASED)
"""States in which this Node's Pods use the other Node as all others do, though the address may be here, too."""


def state_of(facts: Facts, egress: Egress, node: ThisNode) -> HandoverState:
    """The state of an address on this Node; of one without a pool always `ELSEWHERE`."""
    if assigned_here(facts, egress, node):
        before = previous_holder(facts, egress, node)
        if not before:
            return HandoverState.ASSIGNED
        announced = AnnouncedAddress(egress.key, egress.ip, before)
        is_announced = facts.get(AnnouncedAddress, egress.key) == announced
        return HandoverState.ANNOUNCED if is_announced else HandoverState.TAKING
    taker = _next_holder(facts, egress, node)
    if not taker:
        return HandoverState.ELSEWHERE
    if egress.node == node.name:
        return HandoverState.KEEPING
    return HandoverState.RELEASED if _is_released(facts, egress, taker) else HandoverState.TAKEN_OVER


def _is_released(facts: Facts, egress: Egress, taker: str) -> bool:
    row = facts.get(ReleasedAddress, egress.key)
    return row is not None and (row.ip, row.to) == (egress.ip, taker)


def assigned_here(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node is to hold its address: `TAKING`, `ANNOUNCED` or `ASSIGNED`."""
    owner = facts.get(EgressOwner, egress.key) if egress.ip and egress.pool else None
    return owner is not None and owner.node == node.name


def previous_holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Return the Node that still answers for an address which another is to take, whichever these are; empty if none."""
    owner = facts.get(EgressOwner, egress.key) if egress.pool else None
    now = _holder(facts, egress, node) if owner and owner.node else ""
    return now if owner and now != owner.node else ""


def _holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Return the Node that has the address by its status, and can; empty if none, as far as `node` has received."""
    if not egress.node or egress.held != egress.ip:
        return ""
    if egress.node == node.name:
        return egress.node if facts.get(LocalAddress, egress.ip) else ""
    member = facts.get(GossipMember, egress.node)
    return egress.node if member and member.may_hold else ""


def _next_holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Return the Node that takes over what this Node has; without a majority it releases immediately, and none does."""
    owner = facts.get(EgressOwner, egress.key) if egress.ip and egress.pool else None
    if owner is None or owner.node in ("", node.name) or egress.held != egress.ip:
        return ""
    gives_up = egress.node == owner.node and _is_released(facts, egress, owner.node)
    quorum, here = facts.get(Quorum), facts.get(LocalAddress, egress.ip) or gives_up
    names = egress.node in (node.name, owner.node)
    return owner.node if here and names and quorum and quorum.has else ""


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
