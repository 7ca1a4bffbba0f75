"""What this Node says of an Egress with lists: which of its addresses it has, beside what other Nodes say.

The first address stands where an Egress has its only one, for `kubectl get egress` and whoever knows upstream's fields alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.part import Condition
from antrea.apis.status import Items, Status
from antrea.facts.egress import Egress, EgressMark, EgressOwner
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.bandwidth import limit_conditions
from antrea.features.egress.failback import failback_word
from antrea.features.egress.handover import is_awaited, is_ours
from antrea.features.egress.status import (
    ASSIGNED,
    EGRESSES,
    FULL,
    IP_ASSIGNED,
    failed,
    holder_fields,
    not_taken,
    teller,
)
from antrea.features.egress.trouble import shared_conditions, troubles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from antrea.engine import Facts


def list_status(facts: Facts, first: Egress) -> Iterator[Status]:
    """Of all addresses with the first one; only if one is on this Node, or this Node tells that one is nowhere."""
    node = facts.get(ThisNode)
    if node is None or not first.of or first.slot:
        return
    rows = sorted(facts.by(Egress, "name", first.name), key=lambda row: row.slot)
    lost = {row.ip: why for row in rows if (why := _why_nowhere(facts, row))}
    speaks = teller(facts, first, node.name) == node.name
    if not speaks:
        lost = {}
    lost |= {
        row.ip: why
        for row in rows
        if not facts.get(LocalAddress, row.ip) and (why := not_taken(facts, row, node))
    }
    here = {row.ip for row in rows if _is_here(facts, row, node)}
    items = {row.ip: _item(facts, row, node, here) for row in rows if row.ip in here or row.ip in lost}
    conditions = _conditions(facts, rows, lost, node)
    if speaks:
        conditions += shared_conditions(rows)
    if not items and not conditions:
        return
    yield Status(
        path=f"{EGRESSES}/{first.name}",
        kind="Egress",
        manager=f"antrea-agent-{node.name}",
        fields=holder_fields(first.ip, node.name if first.ip in here else "") if first.ip in items else (),
        conditions=conditions,
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
    ours = is_here or is_ours(facts, egress, node)
    return (
        *found,
        *((("failback", failback),) if failback else ()),
        *(troubles(facts, egress, node.name) if ours else ()),
    )


def _conditions(
    facts: Facts, rows: list[Egress], lost: dict[str, str], node: ThisNode
) -> tuple[Condition, ...]:
    """That all is well is said by who has the first address."""
    first = rows[0]
    here = [row.ip for row in rows if _is_here(facts, row, node)]
    full = {ip: f"Node {node.name} {FULL}" for ip in here if facts.get(EgressMark, ip) is None}
    if whys := lost | full:
        return (failed(", ".join(f"{ip}: {why}" for ip, why in whys.items())),)
    if first.ip not in here:
        return ()
    pooled = [row for row in rows if row.pool]
    again = (Condition(IP_ASSIGNED),) if first.failed else ()
    assigned = (ASSIGNED,) if pooled else again
    if first.failed and not all(row.node for row in pooled):
        # another Node may have found that it cannot have its own
        assigned = ()
    if any(_why_nowhere(facts, row) for row in pooled):
        assigned = ()
    return (*assigned, *limit_conditions(facts, first, node.name))


def _is_here(facts: Facts, egress: Egress, node: ThisNode) -> bool:
    here = bool(egress.ip) and facts.get(LocalAddress, egress.ip) is not None
    ours = is_ours(facts, egress, node) and not is_awaited(facts, egress, node)
    return here and (not egress.pool or ours)


def _why_nowhere(facts: Facts, egress: Egress) -> str:
    owner = facts.get(EgressOwner, egress.key) if egress.pool and egress.ip else None
    return owner.why if owner and not owner.node else ""
