"""Answer to `antctl egress what-if`: which Node would hold each address if Nodes were lost, computed as agents would place it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.errors import Invalid, Unavailable
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.member import AgentNode, PoolSelector, Quorum
from antrea.features.egress.agent.owner import NO_MAJORITY, NO_ROOM, placements
from antrea.features.egress.what_if_query import LOSE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Facts


def what_if(facts: Facts, query: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what becomes of each address of a pool on one of the lost Nodes. Raises Invalid, Unavailable."""
    lost = frozenset(name for name in query.get(LOSE, "").replace(",", " ").split())
    if not lost:
        raise Invalid(LOSE, "name a Node, or several separated by commas")
    nodes = {node.name for node in facts.all(AgentNode)}
    if unknown := sorted(lost - nodes):
        raise Invalid(LOSE, f"there is no Node {unknown[0]!r}")
    quorum = facts.get(Quorum)
    if quorum is None or not facts.feeds.has(PoolSelector):
        raise Unavailable("this agent has not found the others yet")
    alive = quorum.alive - len(lost)
    has_majority = 2 * alive > quorum.of
    after = placements(facts, lost)
    rows = []
    for egress in sorted(facts.all(Egress), key=lambda row: row.key):
        owner = facts.get(EgressOwner, egress.key)
        if owner is not None and owner.node in lost:
            to = after.get(egress.key, "") if has_majority else ""
            why = "" if to else NO_ROOM if has_majority else NO_MAJORITY
            rows.append(_row(egress, owner.node, to, why))
    return rows


def _row(egress: Egress, node: str, to: str, why: str) -> dict[str, str]:
    kept = "ports" if egress.survives else "sync" if egress.copies else "none"
    return {
        "egress": egress.name,
        "egressIP": egress.ip,
        "node": node,
        "nextNode": to,
        "survive": kept,
        "message": why,
    }
