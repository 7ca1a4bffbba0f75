"""Status of an Egress by this Node: which of its addresses it has, and which of them no Node has or translates.

A single address is a list of one. The first is where upstream has the only one, for `kubectl get egress` and clients that only
read upstream's fields; those of an Egress with lists have entries of their own beside it.
parity: pkg/agent/controller/egress/egress_controller.go updateEgressStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.egress_address import EGRESSES
from antrea.apis.status import Items, Status
from antrea.engine import Act
from antrea.facts.egress import Egress
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.address_report import (
    address_conditions,
    address_entry,
    report_of,
    reports_lost,
    shared_conditions,
    why_nowhere,
)
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.bandwidth import limit_conditions
from antrea.features.egress.agent.connection_copy import copied_conditions
from antrea.features.egress.spec import IP_ASSIGNED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.engine import Facts
    from antrea.features.egress.agent.address_report import AddressReport

ASSIGNED: Final = Condition(
    IP_ASSIGNED, "True", reason="Assigned", message="EgressIP is successfully assigned to EgressNode"
)
STALE: Final = Condition("Stale")
"""Condition of a type that no status has: an entry with it differs from the one before, and so is written once more."""


class RecordAssignmentFailed(Act, frozen=True):
    """Event that no Node holds or translates the address of an Egress."""

    egress: str
    uid: str
    node: str
    message: str


def egress_status(facts: Facts, first: Egress) -> Iterator[Status | RecordAssignmentFailed]:
    """Yield the status of all addresses with the first one; only if one is on this Node, or this Node reports that one is
    nowhere.
    """
    node = facts.get(ThisNode)
    if node is None or first.slot:
        return
    rows = sorted(facts.by(Egress, "name", first.name), key=lambda row: row.slot) if first.of else [first]
    reports = [report_of(facts, first, row, node) for row in rows]
    conditions = _conditions(facts, reports, node)
    if not conditions and not any(report.is_reported for report in reports):
        return
    if why := _why_failed(reports):
        yield from _failure_event(first, node.name, why)
    yield Status(
        path=f"{EGRESSES}/{first.name}",
        kind="Egress",
        manager=f"antrea-agent-{node.name}",
        fields=_fields(reports[0], node.name),
        conditions=conditions,
        ahead=True,
        items=_items(facts, reports, node) if first.of else None,
    )


def _fields(report: AddressReport, node: str) -> tuple[tuple[str, str], ...]:
    """Return the fields of the first address, as upstream's status has them; none if others report it, or no status names it."""
    row = report.row
    if not report.is_reported or (report.missing and not (row.of or row.node or row.held)):
        return ()
    return (
        (("egressNode", node), ("egressIP", row.ip))
        if report.here
        else (("egressNode", ""), ("egressIP", ""))
    )


def _items(facts: Facts, reports: Sequence[AddressReport], node: ThisNode) -> Items:
    """Return the entries of addresses that are here or nowhere, beside those of other Nodes."""
    entries = {
        report.row.ip: address_entry(facts, report, node)
        for report in reports
        if report.row.ip and report.is_reported
    }
    known = tuple(report.row.ip for report in reports if report.row.ip)
    return Items("addresses", "egressIP", tuple(entries.values()), known)


def _conditions(facts: Facts, reports: Sequence[AddressReport], node: ThisNode) -> tuple[Condition, ...]:
    """Conditions of this Node, before those of the controller, as upstream."""
    first, rows = reports[0], [report.row for report in reports]
    why = _why_failed(reports)
    assigned = (failed(why),) if why else _assigned(facts, reports)
    limits = limit_conditions(facts, first.row, node.name) if first.here else ()
    limits += copied_conditions(facts, first.row) if first.here else ()
    if not first.row.of:
        return (*assigned, *address_conditions(facts, first, node), *limits)
    shared = shared_conditions(rows) if reports_lost(facts, first.row, node) else ()
    return (*assigned, *limits, *shared)


def _assigned(facts: Facts, reports: Sequence[AddressReport]) -> tuple[Condition, ...]:
    """Return the condition that everything is assigned, by the holder of the first address."""
    first = reports[0]
    if not first.here:
        return ()
    pooled = [report.row for report in reports if report.row.pool]
    if first.row.failed and not all(report.here or report.row.node for report in reports):
        return ()  # another Node may have found that it cannot have its own
    if any(why_nowhere(facts, row) or unallocated_reason(facts, row) for row in pooled):
        return ()
    if pooled:
        return (ASSIGNED, STALE) if first.row.failed else (ASSIGNED,)
    return (Condition(IP_ASSIGNED),) if first.row.failed else ()


def _why_failed(reports: Sequence[AddressReport]) -> str:
    """Return why not all addresses are assigned; empty if all of this Node's are."""
    if not reports[0].row.of:
        return reports[0].why
    return ", ".join(
        f"{row_report.row.ip or row_report.row.invalid or row_report.row.pool}: {row_report.why}"
        for row_report in sorted(reports, key=lambda report: report.here)
        if row_report.why
    )


def _failure_event(egress: Egress, node: str, why: str) -> Iterator[RecordAssignmentFailed]:
    """Yield the Event unless the status has it already: an agent that restarts does not repeat it."""
    message = failed(why).message
    if egress.failed != message:
        yield RecordAssignmentFailed(
            egress.key, why, egress=egress.name, uid=egress.uid, node=node, message=message
        )


def failed(why: str) -> Condition:
    """Make the condition that no Node can hold an address, or translate it."""
    message = f"Failed to assign the IP to EgressNode: {why}"
    return Condition(IP_ASSIGNED, "False", reason="AssignmentError", message=message)


def failure(conditions: Iterable[Condition]) -> str:
    """Return why no Node holds or translates an address, by its status; empty if there is none."""
    return next(
        (
            condition.message
            for condition in conditions
            if condition.type == IP_ASSIGNED and condition.status == "False"
        ),
        "",
    )
