"""A move of an Egress IP between two Nodes that live: the next one has it before the one before gives it up.

The next Node takes the address and tells its neighbours, then says so in the status. By that agents turn their Pods'
packets to it, one after the other, and when all have the Node before drops the address. Until then both translate, and
what answers come to the wrong one go on to the other (relay.py). Of a Node that is dead nothing is awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act
from antrea.facts.egress import Announced, EgressOwner, Parted
from antrea.facts.member import Member, Quorum
from antrea.facts.node import LocalAddress, ThisNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress


class Part(Act, frozen=True):
    """Write, after a moment in which late packets arrive, that this Node gives `ip` up for `to`."""

    egress: str
    ip: str
    to: str


class Receive(Act, frozen=True):
    """Say, once neighbours had a moment to hear it, that this Node announced `ip`, which `before` hands over."""

    egress: str
    ip: str
    before: str


class Unassigned(Act, frozen=True):
    """Say in an Event of the Egress that this Node holds its address no longer."""

    egress: str
    uid: str
    ip: str
    node: str


def is_ours(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node is to hold its address."""
    owner = facts.get(EgressOwner, egress.key) if egress.ip and egress.pool else None
    return owner is not None and owner.node == node.name


def holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Who has the address by its status, and can; empty: nobody, as far as `node` knows."""
    if not egress.node or egress.held != egress.ip:
        return ""
    if egress.node == node.name:
        return egress.node if facts.get(LocalAddress, egress.ip) else ""
    member = facts.get(Member, egress.node)
    return egress.node if member and (member.alive or member.left) else ""


def giver(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """The Node that still answers for an address which another is to take; empty: there is none."""
    owner = facts.get(EgressOwner, egress.key) if egress.pool else None
    now = holder(facts, egress, node) if owner and owner.node else ""
    return now if owner and now != owner.node else ""


def is_awaited(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether our neighbours may not have heard yet that an address, which another Node hands over, is here."""
    before = giver(facts, egress, node)
    return before != "" and facts.get(Announced, egress.key) != Announced(egress.key, egress.ip, before)


def is_kept(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node still has an address that another is to take."""
    taker = next_holder(facts, egress, node)
    if not taker:
        return False
    return egress.node == node.name or not _is_parted(facts, egress, taker)


def is_taken(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether another Node has it already, though it still is here, too: our own Pods turn there as all others do."""
    return bool(next_holder(facts, egress, node)) and egress.node != node.name


def parting(facts: Facts, egress: Egress, node: ThisNode) -> Iterator[Part]:
    """Once the other one has it."""
    taker = next_holder(facts, egress, node)
    if taker and egress.node == taker and not _is_parted(facts, egress, taker):
        yield Part(egress.key, (egress.ip, taker), egress=egress.key, ip=egress.ip, to=taker)


def given_up(facts: Facts, egress: Egress) -> Iterator[Unassigned]:
    """Once an address that this Node handed over has gone; of one that a Node without a majority drops nobody can be told."""
    node, row = facts.get(ThisNode), facts.get(Parted, egress.key)
    if node is None or row is None or row.ip != egress.ip or facts.get(LocalAddress, egress.ip):
        return
    yield Unassigned(
        egress.key, (row.ip, row.to), egress=egress.name, uid=egress.uid, ip=egress.ip, node=node.name
    )


def next_holder(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Who takes over what this Node has; without a majority it gives up at once, and nobody does."""
    owner = facts.get(EgressOwner, egress.key) if egress.ip and egress.pool else None
    if owner is None or owner.node in ("", node.name) or egress.held != egress.ip:
        return ""
    quorum, here = facts.get(Quorum), facts.get(LocalAddress, egress.ip)
    names = egress.node in (node.name, owner.node)
    return owner.node if here and names and quorum and quorum.has else ""


def _is_parted(facts: Facts, egress: Egress, taker: str) -> bool:
    return facts.get(Parted, egress.key) == Parted(egress.key, egress.ip, taker)
