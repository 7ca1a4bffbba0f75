"""Addresses that no Node has, or that their Egress was not given: which Node reports them in the status and by an Event, and
when.

It must have been so for a moment (`MissingAddress`): an allocation, a first list of pools and an address that its user moves
from one Node to another are merely late. Upstream reports nothing about an address without a pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act
from antrea.facts.egress import Egress, MissingAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.allocated import why_unallocated
from antrea.features.egress.agent.hash_ring import ring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class ReportMissing(Act, frozen=True):
    """Write `MissingAddress` if `why` holds for a moment."""

    egress: str
    """Key of the Egress row."""
    why: str
    slow: bool = False
    """Whether another Node had it, which this one may not have found yet, as it has just begun to gossip."""


def report_missing(facts: Facts, egress: Egress) -> Iterator[ReportMissing]:
    """Yield the report of the Node that is to report it."""
    node = facts.get(ThisNode)
    if node and (why := why_missing(facts, egress, node)):
        slow = not egress.pool and egress.node not in ("", node.name)
        yield ReportMissing(egress.key, why, egress=egress.key, why=why, slow=slow)


def reported_missing(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Return what this Node reports of a missing address; empty if nothing (yet)."""
    row = facts.get(MissingAddress, egress.key)
    return row.why if row and row.why == why_missing(facts, egress, node) else ""


def why_missing(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Return why no Node has the address of this row, or may use it; empty if one has, or another Node is to report it.

    The last holder of an address without a pool reports that it is gone, and else the one reporting Node.
    """
    if why := why_unallocated(facts, egress):
        return why if _reports_for_all(facts, egress, node) else ""
    if egress.pool or not egress.ip or facts.get(LocalAddress, egress.ip):
        return ""
    had = egress.node if egress.held == egress.ip else ""
    if had != node.name:
        member = facts.get(GossipMember, had) if had else None
        if (member and member.alive) or not _reports_for_all(facts, egress, node):
            return ""
    return f"no Node has {egress.ip} on an interface"


def _reports_for_all(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    """Whether this Node reports for all addresses of an Egress."""
    first = facts.get(Egress, egress.name) if egress.slot else egress
    return reporting_node(facts, first or egress, node.name) == node.name


def reporting_node(facts: Facts, egress: Egress, me: str) -> str:
    """Whether this is the one reporting Node, by its place on the ring of those that live; none of a minority is."""
    quorum = facts.get(Quorum)
    if quorum is None or not quorum.has:
        return ""
    alive = {member.node for member in facts.all(GossipMember) if member.alive}
    return ring(frozenset({*alive, me})).pick(egress.ip or egress.name)
