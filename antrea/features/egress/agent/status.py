"""What this Node reports of an Egress: which of its addresses it has, and which of them no Node has or translates.

One address is a list of one. The first stands where upstream has the only one, for `kubectl get egress` and clients that
read upstream's fields alone; those of an Egress with lists have entries of their own beside it.
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
from antrea.features.egress.agent.address_condition import (
    address_conditions,
    address_entry,
    shared_conditions,
)
from antrea.features.egress.agent.address_report import report_of, reports_lost, why_nowhere
from antrea.features.egress.agent.allocated import why_unallocated
from antrea.features.egress.agent.bandwidth import limit_conditions
from antrea.features.egress.spec import IP_ASSIGNED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.engine import Facts
    from antrea.features.egress.agent.address_report import AddressReport

ASSIGNED: Final = Condition(
    IP_ASSIGNED, "True", reason="Assigned", message="EgressIP is successfully assigned to EgressNode"
)
STALE: Final = Condition("Stale")
"""There is none of this type: an entry with it differs from the one before, and so is written once more."""


class RecordAssignmentFailed(Act, frozen=True):
    """Report in an Event of the Egress that no Node holds or translates its address."""

    egress: str
    uid: str
    node: str
    message: str


def egress_status(facts: Facts, first: Egress) -> Iterator[Status | RecordAssignmentFailed]:
    """Of all addresses with the first one; only if one is on this Node, or this Node reports that one is nowhere."""
    node = facts.get(ThisNode)
    if node is None or first.slot:
        return
    rows = sorted(facts.by(Egress, "name", first.name), key=lambda row: row.slot) if first.of else [first]
    reports = [report_of(facts, first, row, node) for row in rows]
    conditions = _conditions(facts, reports, node)
    if not conditions and not any(one.is_told for one in reports):
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
    """Of the first address, as upstream's status has them; none of one that others report, or that no status names."""
    row = report.row
    if not report.is_told or (report.missing and not (row.of or row.node or row.held)):
        return ()
    return (
        (("egressNode", node), ("egressIP", row.ip))
        if report.here
        else (("egressNode", ""), ("egressIP", ""))
    )


def _items(facts: Facts, reports: Sequence[AddressReport], node: ThisNode) -> Items:
    """The entries of addresses that are here or nowhere, beside those of other Nodes."""
    told = {one.row.ip: address_entry(facts, one, node) for one in reports if one.row.ip and one.is_told}
    known = tuple(one.row.ip for one in reports if one.row.ip)
    return Items("addresses", "egressIP", tuple(told.values()), known)


def _conditions(facts: Facts, reports: Sequence[AddressReport], node: ThisNode) -> tuple[Condition, ...]:
    """Conditions of this Node, before those of the controller, as upstream."""
    first, rows = reports[0], [one.row for one in reports]
    why = _why_failed(reports)
    assigned = (failed(why),) if why else _assigned(facts, reports)
    limits = limit_conditions(facts, first.row, node.name) if first.here else ()
    if not first.row.of:
        return (*assigned, *address_conditions(facts, first, node), *limits)
    shared = shared_conditions(rows) if reports_lost(facts, first.row, node) else ()
    return (*assigned, *limits, *shared)


def _assigned(facts: Facts, reports: Sequence[AddressReport]) -> tuple[Condition, ...]:
    """The holder of the first address reports that all is well."""
    first = reports[0]
    if not first.here:
        return ()
    pooled = [one.row for one in reports if one.row.pool]
    if first.row.failed and not all(one.here or one.row.node for one in reports):
        return ()  # another Node may have found that it cannot have its own
    if any(why_nowhere(facts, row) or why_unallocated(facts, row) for row in pooled):
        return ()
    if pooled:
        return (ASSIGNED, STALE) if first.row.failed else (ASSIGNED,)
    return (Condition(IP_ASSIGNED),) if first.row.failed else ()


def _why_failed(reports: Sequence[AddressReport]) -> str:
    """Why it is not true that all addresses are assigned; empty: it is true of all that are this Node's."""
    if not reports[0].row.of:
        return reports[0].why
    return ", ".join(
        f"{one.row.ip or one.row.invalid or one.row.pool}: {one.why}"
        for one in sorted(reports, key=lambda one: one.here)
        if one.why
    )


def _failure_event(egress: Egress, node: str, why: str) -> Iterator[RecordAssignmentFailed]:
    """Unless the status has it already: an agent that starts anew does not repeat it."""
    message = failed(why).message
    if egress.failed != message:
        yield RecordAssignmentFailed(
            egress.key, why, egress=egress.name, uid=egress.uid, node=node, message=message
        )


def failed(why: str) -> Condition:
    """That no Node can hold an address, or translate it."""
    message = f"Failed to assign the IP to EgressNode: {why}"
    return Condition(IP_ASSIGNED, "False", reason="AssignmentError", message=message)


def failure(conditions: Iterable[Condition]) -> str:
    """Why no Node holds or translates an address, by its status; empty: no such address."""
    return next((one.message for one in conditions if one.type == IP_ASSIGNED and one.status == "False"), "")
