"""Copies of connections for the next gateways: which Node sends them for an address, to which others, and from which one they are accepted.

The holder of an address streams what its kernel translates to it to the two Nodes that follow it in the rank. Those enter it
into their own tables, so that whichever takes the address over has the connections before the address is announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.facts.egress import ConnectionCopy, CopySource, Egress, EgressOwner, HeirReport
from antrea.facts.member import GossipMember, PoolMembers, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.handover import HandoverState, previous_holder, state_of
from antrea.features.egress.agent.hash_ring import choose

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from antrea.engine import Facts

HEIRS: Final = 2
"""Nodes that get copies: the address outlives two failures in a row."""
COPIED: Final = "ConnectionsCopied"
"""Type of a condition beyond upstream's."""


def connection_copy(facts: Facts, egress: Egress) -> Iterator[ConnectionCopy]:
    """Yield who gets copies of this Node's connections, while it holds the address, or hands it over, with the majority."""
    node, quorum = facts.get(ThisNode), facts.get(Quorum)
    if node is None or quorum is None or not quorum.has or not _decides(facts, egress):
        return
    if not facts.get(LocalAddress, egress.ip):
        return
    owner, state = facts.get(EgressOwner, egress.key), state_of(facts, egress, node)
    if state is HandoverState.KEEPING and owner:
        yield ConnectionCopy(egress.ip, (owner.node,), whole=not egress.survives)
    elif state is HandoverState.ASSIGNED:
        heirs = tuple(_heirs(facts, egress, node.name))
        yield ConnectionCopy(egress.ip, heirs, whole=not egress.survives)


def copy_source(facts: Facts, egress: Egress) -> Iterator[CopySource]:
    """Yield the Node that has the address, while that is another one: what any other sends is stale."""
    node = facts.get(ThisNode)
    if node is None or not _decides(facts, egress):
        return
    state = state_of(facts, egress, node)
    if state in (HandoverState.TAKING, HandoverState.ANNOUNCED):
        yield CopySource(egress.ip, previous_holder(facts, egress, node))
        return
    if state not in (HandoverState.ELSEWHERE, HandoverState.TAKEN_OVER, HandoverState.RELEASED):
        return
    owner, member = facts.get(EgressOwner, egress.key), facts.get(GossipMember, egress.node)
    holds = member is not None and member.may_hold and egress.held == egress.ip
    source = egress.node if holds else owner.node if owner else ""
    if source not in ("", node.name):
        yield CopySource(egress.ip, source)


def _decides(facts: Facts, egress: Egress) -> bool:
    """Whether this Egress asks for copies, and is the oldest with its address that does."""
    if not (egress.copies and egress.pool and egress.ip):
        return False
    rows = (row for row in facts.by(Egress, "ip", egress.ip) if row.copies)
    oldest = min(
        (row for row in rows if not unallocated_reason(facts, row)),
        key=lambda row: row.precedence,
        default=None,
    )
    return oldest is not None and oldest.key == egress.key


def _heirs(facts: Facts, egress: Egress, holder: str) -> Iterator[str]:
    """Yield the next Nodes of the rank that live; those with another address of the same Egress come last."""
    members = facts.get(PoolMembers, egress.pool)
    siblings = {
        owner.node
        for row in facts.by(Egress, "name", egress.name)
        if row.key != egress.key and (owner := facts.get(EgressOwner, row.key))
    }
    heirs: list[str] = []
    for may in (siblings.isdisjoint, siblings.issuperset):
        for tier in members.tiers if members else ():
            rest = frozenset(node for node in tier if node != holder and may((node,)))
            while len(heirs) < HEIRS and (rest := rest - {*heirs}):
                heirs.append(choose(egress.ip, rest, lambda _: True, egress.preferred))
    yield from heirs


def copied_conditions(facts: Facts, egress: Egress) -> tuple[Condition, ...]:
    """Return the condition on whether other Nodes have the connections; for the holder."""
    copy = facts.get(ConnectionCopy, egress.ip) if egress.copies and egress.ip else None
    if copy is None:
        return (Condition(COPIED),) if egress.copied and not egress.copies else ()
    reports = [facts.get(HeirReport, heir) for heir in copy.heirs]
    ready = [row.node for row in reports if row and row.whole and not row.refused]
    trouble = [row for row in reports if row and row.refused]
    waiting = [heir for heir, row in zip(copy.heirs, reports, strict=True) if not row or not row.whole]
    why = _why_not(copy.heirs, trouble, waiting)
    if ready:
        message = (
            f"{_names(ready)} {'has' if len(ready) == 1 else 'have'} the connections{why and f'; {why}'}"
        )
        return (Condition(COPIED, "True", reason="Copied", message=message),)
    reason = "NoOtherNode" if not copy.heirs else "Refused" if trouble else "Waiting"
    return (Condition(COPIED, "False", reason=reason, message=why),)


def _why_not(heirs: Collection[str], trouble: Sequence[HeirReport], waiting: Sequence[str]) -> str:
    if not heirs:
        return "no other Node of the pool is alive"
    parts = [
        f"Node {row.node} does not have all of them: "
        + ("its table of connections is full" if row.full else "its kernel refuses some")
        for row in trouble
    ]
    if waiting:
        parts.append(f"{_names(waiting)} {'has' if len(waiting) == 1 else 'have'} not reported yet")
    return "; ".join(parts)


def _names(nodes: Sequence[str]) -> str:
    return f"Node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
