"""A move of an Egress IP between two Nodes that live: the next one has it before the one before gives it up.

The next Node takes the address and says so in the status. All agents see that at the same time: Pods' packets turn to it,
it tells its neighbours, and a moment later the Node before drops the address. Of a Node that is dead nothing is awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act
from antrea.facts.egress import EgressOwner, Parted
from antrea.facts.member import Member, Quorum
from antrea.facts.node import LocalAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress
    from antrea.facts.node import ThisNode


class Part(Act, frozen=True):
    """Write, after a moment in which late packets arrive, that this Node gives `ip` up for `to`."""

    egress: str
    ip: str
    to: str


def is_ours(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node is to hold its address."""
    owner = facts.get(EgressOwner, egress.name) if egress.ip and egress.pool else None
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
    owner = facts.get(EgressOwner, egress.name) if egress.pool else None
    now = holder(facts, egress, node) if owner and owner.node else ""
    return now if owner and now != owner.node else ""


def is_kept(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node still has an address that another is to take."""
    taker = _taker(facts, egress, node)
    if not taker:
        return False
    return egress.node == node.name or not _is_parted(facts, egress, taker)


def is_taken(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether another Node has it already, though it still is here, too: our own Pods turn there as all others do."""
    return bool(_taker(facts, egress, node)) and egress.node != node.name


def parting(facts: Facts, egress: Egress, node: ThisNode) -> Iterator[Part]:
    """Once the other one has it."""
    taker = _taker(facts, egress, node)
    if taker and egress.node == taker and not _is_parted(facts, egress, taker):
        yield Part(egress.name, (egress.ip, taker), egress=egress.name, ip=egress.ip, to=taker)


def _taker(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Who takes over what this Node has; without a majority it gives up at once, and nobody does."""
    owner = facts.get(EgressOwner, egress.name) if egress.ip and egress.pool else None
    if owner is None or owner.node in ("", node.name) or egress.held != egress.ip:
        return ""
    quorum, here = facts.get(Quorum), facts.get(LocalAddress, egress.ip)
    names = egress.node in (node.name, owner.node)
    return owner.node if here and names and quorum and quorum.has else ""


def _is_parted(facts: Facts, egress: Egress, taker: str) -> bool:
    return facts.get(Parted, egress.name) == Parted(egress.name, egress.ip, taker)
