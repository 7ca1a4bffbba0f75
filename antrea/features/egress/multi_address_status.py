"""What this Node reports of an Egress with lists: which of its addresses it has, beside the entries of other Nodes.

The first address stands where an Egress has its only one, for `kubectl get egress` and clients that read upstream's fields alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.part import Condition
from antrea.apis.status import Items, Status
from antrea.facts.egress import Egress, EgressMark, EgressOwner
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.address_condition import shared_conditions, troubles
from antrea.features.egress.allocated import why_unallocated
from antrea.features.egress.bandwidth import limit_conditions
from antrea.features.egress.failback import failback_word
from antrea.features.egress.handover import assigned_here, awaits_announcement
from antrea.features.egress.missing import reported_missing, reporting_node
from antrea.features.egress.status import (
    ASSIGNED,
    EGRESSES,
    FULL,
    IP_ASSIGNED,
    STALE,
    RecordAssignmentFailed,
    failed,
    failure_event,
    holder_fields,
    not_taken,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from antrea.engine import Facts


def list_status(facts: Facts, first: Egress) -> Iterator[Status | RecordAssignmentFailed]:
    """Of all addresses with the first one; only if one is on this Node, or this Node reports that one is nowhere."""
    node = facts.get(ThisNode)
    if node is None or not first.of or first.slot:
        return
    rows = sorted(facts.by(Egress, "name", first.name), key=lambda row: row.slot)
    for_all = reporting_node(facts, first, node.name) == node.name
    lost = {row.key: why for row in rows if (why := _why_lost(facts, row, node, for_all=for_all))}
    here = {row.ip for row in rows if _is_here(facts, row, node)}
    told = (row for row in rows if row.ip and (row.ip in here or row.key in lost))
    items = {row.ip: _item(facts, row, node, here) for row in told}
    why = _why_failed(facts, rows, lost, node)
    conditions = (failed(why),) if why else _conditions(facts, rows, node)
    if for_all:
        conditions += shared_conditions(rows)
    if not items and not conditions:
        return
    if why:
        yield from failure_event(first, node.name, why)
    is_told = first.ip in here or first.key in lost
    yield Status(
        path=f"{EGRESSES}/{first.name}",
        kind="Egress",
        manager=f"antrea-agent-{node.name}",
        fields=holder_fields(first.ip, node.name if first.ip in here else "") if is_told else (),
        conditions=conditions,
        ahead=True,
        items=Items(
            "addresses",
            "egressIP",
            tuple(items.values()),
            tuple(row.ip for row in rows if row.ip),
        ),
    )


def _item(facts: Facts, egress: Egress, node: ThisNode, here: Collection[str]) -> tuple[tuple[str, str], ...]:
    """The entry of an address that is here, or nowhere."""
    is_here = egress.ip in here
    found = (("egressIP", egress.ip), ("egressNode", node.name if is_here else ""))
    failback = failback_word(facts, egress) if is_here else ""
    ours = is_here or assigned_here(facts, egress, node)
    return (
        *found,
        *((("failback", failback),) if failback else ()),
        *(troubles(facts, egress, node.name) if ours else ()),
    )


def _why_lost(facts: Facts, row: Egress, node: ThisNode, *, for_all: bool) -> str:
    """What this Node reports of an address that is nowhere; empty: nothing. `for_all`: it reports for all."""
    if why := reported_missing(facts, row, node) or (for_all and _why_nowhere(facts, row)):
        return why
    return "" if facts.get(LocalAddress, row.ip) else not_taken(facts, row, node)


def _why_failed(facts: Facts, rows: list[Egress], lost: Mapping[str, str], node: ThisNode) -> str:
    """Of which address it is not true that it is assigned, and why; empty: of none that is this Node's."""
    full = {
        row.key: f"Node {node.name} {FULL}"
        for row in rows
        if _is_here(facts, row, node) and facts.get(EgressMark, row.ip) is None
    }
    names = {row.key: row.ip or row.invalid or row.pool for row in rows}
    return ", ".join(f"{names[key]}: {why}" for key, why in {**lost, **full}.items())


def _conditions(facts: Facts, rows: list[Egress], node: ThisNode) -> tuple[Condition, ...]:
    """The holder of the first address reports that all is well."""
    first = rows[0]
    if not _is_here(facts, first, node):
        return ()
    pooled = [row for row in rows if row.pool]
    stale = (STALE,) if first.failed else ()
    again = (Condition(IP_ASSIGNED),) if first.failed else ()
    assigned = (ASSIGNED, *stale) if pooled else again
    if first.failed and not all(row.node for row in rows):
        # another Node may have found that it cannot have its own
        assigned = ()
    if any(_why_nowhere(facts, row) or why_unallocated(facts, row) for row in pooled):
        assigned = ()
    return (*assigned, *limit_conditions(facts, first, node.name))


def _is_here(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    here = bool(egress.ip) and facts.get(LocalAddress, egress.ip) is not None
    ours = assigned_here(facts, egress, node) and not awaits_announcement(facts, egress, node)
    return here and (not egress.pool or ours)


def _why_nowhere(facts: Facts, egress: Egress) -> str:
    owner = facts.get(EgressOwner, egress.key) if egress.pool and egress.ip else None
    return owner.why if owner and not owner.node else ""
