"""Faults of an address: a condition of its Egress, or, with several addresses, the address's own entry in the status.

Several Nodes may have addresses of an Egress, and a condition is one for all of them. So each Node writes its findings where no
other writes, and the reporting Node gathers them in conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.facts.egress import EgressOwner
from antrea.facts.member import GossipMember
from antrea.features.egress.agent.duplicate_address import CONFLICT, conflict_conditions
from antrea.features.egress.agent.failback import failback_conditions, failback_word
from antrea.features.egress.agent.gateway_reachability import gateway_conditions, silence
from antrea.features.egress.agent.handover_state import assigned_here
from antrea.features.egress.spec import ANSWERS
from antrea.features.external_ip_pool.duplicate import other_host, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.crd.egress import AddressStatus
    from antrea.engine import Facts
    from antrea.facts.egress import Egress
    from antrea.facts.node import ThisNode
    from antrea.features.egress.agent.address_report import AddressReport

Words = tuple[tuple[str, str], ...]
"""Fields of an entry with their values."""
CONFLICT_FIELD: Final = "conflict"
SILENCE_FIELD: Final = "unanswered"


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
