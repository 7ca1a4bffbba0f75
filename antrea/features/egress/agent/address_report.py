"""Findings of this Node on one address of an Egress: whether it is here, and why no Node has or translates it.

A missing address is reported in the status and by an Event once it has been missing for a moment (`MissingAddress`): an
allocation, a first list of pools and an address that its user moves from one Node to another are merely late. Upstream reports
nothing about an address without a pool.

A fault is a condition of the Egress, or, with several addresses, the address's own entry in the status: several Nodes may have
addresses of an Egress, and a condition is one for all of them. So each Node writes its findings where no other writes, and the
reporting Node gathers them in conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis.crd.part import Condition
from antrea.engine import Act
from antrea.facts.egress import Egress, EgressMark, EgressOwner, MissingAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.address import HELD_ADDRESSES
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.duplicate_address import CONFLICT, conflict_conditions
from antrea.features.egress.agent.gateway_reachability import gateway_conditions, silence
from antrea.features.egress.agent.handover import USABLE, assigned_here, state_of
from antrea.features.egress.agent.hash_ring import ring
from antrea.features.egress.agent.owner import failback_conditions, failback_word
from antrea.features.egress.agent.snat_mark import MAX_AS
from antrea.features.egress.spec import ANSWERS
from antrea.features.external_ip_pool.duplicate import other_host, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.apis.crd.egress import AddressStatus
    from antrea.engine import Facts

FULL: Final = (
    f"translates {MAX_AS} Egress IPs already, as many as there are marks: its Pods get no packet out"
)
Words = tuple[tuple[str, str], ...]
"""Fields of an entry with their values."""
CONFLICT_FIELD: Final = "conflict"
SILENCE_FIELD: Final = "unanswered"


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
    if why := unallocated_reason(facts, egress):
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


class AddressReport(NamedTuple):
    """Findings on one address; nothing is set if another Node has it, or reports it."""

    row: Egress
    here: bool
    """Whether this Node has it, and its neighbors know."""
    why: str
    """Why no Node has it or, if it is here, translates it; empty if nothing is known against it."""
    missing: bool
    """Whether no Node has had it for a moment, or may use it."""

    @property
    def is_reported(self) -> bool:
        """Whether this Node writes where it is."""
        return self.here or bool(self.why)


def report_of(facts: Facts, first: Egress, row: Egress, node: ThisNode) -> AddressReport:
    """Make the report; `first` is the first address of the same Egress, often this one."""
    if why := reported_missing(facts, row, node):
        return AddressReport(row, here=False, why=why, missing=True)
    if _is_here(facts, row, node):
        full = "" if facts.get(EgressMark, row.ip) else f"Node {node.name} {FULL}"
        return AddressReport(row, here=True, why=full, missing=False)
    why = why_nowhere(facts, row)
    if not why or not reports_lost(facts, first, node):
        why = "" if facts.get(LocalAddress, row.ip) else _why_not_taken(facts, row, node)
    return AddressReport(row, here=False, why=why, missing=False)


def reports_lost(facts: Facts, first: Egress, node: ThisNode) -> bool:
    """Whether this Node reports for all addresses of an Egress; `first` is the first of them."""
    return reporting_node(facts, first, node.name) == node.name


def why_nowhere(facts: Facts, row: Egress) -> str:
    """Return why no Node is to hold an address of a pool; empty if one is, or it is not placed (yet)."""
    owner = facts.get(EgressOwner, row.key) if row.pool and row.ip else None
    return owner.why if owner and not owner.node else ""


def _is_here(facts: Facts, row: Egress, node: ThisNode) -> bool:
    if not row.ip or facts.get(LocalAddress, row.ip) is None:
        return False
    return not row.pool or state_of(facts, row, node) in USABLE


def _why_not_taken(facts: Facts, row: Egress, node: ThisNode) -> str:
    """Return why an address that this Node is to hold is not here; empty if nothing is known against it."""
    if not assigned_here(facts, row, node):
        return ""
    if mac := other_host(facts, row.key, row.ip):
        return sentence(row.ip, mac)
    why = facts.refusal(HELD_ADDRESSES, row.key)
    return f"Node {node.name} cannot take {row.ip}: {why}" if why else ""


def words_of(entry: AddressStatus) -> Words:
    """Return the fault that an entry of the status names."""
    return _condition_fields(entry.conflict, entry.unanswered)


def address_conditions(facts: Facts, report: AddressReport, node: ThisNode) -> tuple[Condition, ...]:
    """Return the conditions of an Egress of one address, by the Node that has it and translates it, or cannot take it."""
    row = report.row
    if not report.is_reported or (report.here and report.why):
        return ()
    if not row.pool:
        return (conflict_conditions(facts, row) or _of_dead_holder(facts, row)) if report.here else ()
    owner = facts.get(EgressOwner, row.key)
    if owner is None or owner.node != node.name:
        return ()
    conflict = conflict_conditions(facts, row)
    if not report.here:
        return conflict
    return (
        *conflict,
        *gateway_conditions(facts, row, node.name),
        *failback_conditions(facts, row, owner),
    )


def _of_dead_holder(facts: Facts, egress: Egress) -> tuple[Condition, ...]:
    """Return the condition of an address that this Node has while the status names a dead Node: the status is then written
    again.
    """
    member = facts.get(GossipMember, egress.node) if egress.node else None
    return () if member is None or member.alive else (Condition(CONFLICT),)


def address_entry(facts: Facts, report: AddressReport, node: ThisNode) -> Words:
    """Return the entry of one of several addresses, which is here or nowhere."""
    row = report.row
    failback = failback_word(facts, row) if report.here else ""
    ours = report.here or assigned_here(facts, row, node)
    return (
        ("egressIP", row.ip),
        ("egressNode", node.name if report.here else ""),
        *((("failback", failback),) if failback else ()),
        *(_troubles(facts, row, node.name) if ours else ()),
    )


def _troubles(facts: Facts, egress: Egress, node: str) -> Words:
    """Return what the Node that has the address, or is to hold it, reports of it."""
    mac = other_host(facts, egress.key, egress.ip)
    return _condition_fields(sentence(egress.ip, mac) if mac else "", silence(facts, egress, node))


def _condition_fields(conflict: str, unanswered: str) -> Words:
    """Return the fields; empty texts are left out."""
    return tuple(
        (field, text) for field, text in ((CONFLICT_FIELD, conflict), (SILENCE_FIELD, unanswered)) if text
    )


def shared_conditions(rows: Sequence[Egress]) -> tuple[Condition, ...]:
    """Return the conditions of all addresses of one Egress, by their entries; for the one reporting Node."""
    first = rows[0]
    kinds = (
        (CONFLICT_FIELD, Condition(CONFLICT, "True", reason="OtherHost"), first.conflicts),
        (SILENCE_FIELD, Condition(ANSWERS, "False", reason="NoAnswer"), first.unanswered),
    )
    conditions = []
    for field, condition, reported in kinds:
        texts = dict.fromkeys(text for row in rows for name, text in row.troubles if name == field)
        if texts:
            conditions.append(
                Condition(condition.type, condition.status, reason=condition.reason, message="; ".join(texts))
            )
        elif reported:
            conditions.append(Condition(condition.type))
    return tuple(conditions)
