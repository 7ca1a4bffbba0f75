"""Who took an Egress IP over, from whom and why: said by the Node that has it now.

Beyond upstream, whose Event says where an address is and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.engine import Act
from antrea.facts.member import ClusterNode, Member, PoolSelector
from antrea.features.grouping.selector import meets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress
    from antrea.facts.fact import Fact
    from antrea.facts.node import ThisNode


class Cause(NamedTuple):
    """Why an address moved, and which row said so; without a kind it is whichever news came last."""

    why: str
    kind: type[Fact] | None = None
    row: str = ""


class TookOver(Act, frozen=True):
    """Say in an Event of the Egress why `node` has its address now, which `before` had, and how long that took."""

    egress: str
    uid: str
    ip: str
    pool: str
    node: str
    before: str
    why: Cause


def took_over(facts: Facts, egress: Egress, node: ThisNode) -> Iterator[TookOver]:
    """As long as the status names another Node for the address that stands here."""
    before = egress.node if egress.held == egress.ip else ""
    if before in ("", node.name):
        return
    yield TookOver(
        egress.key,
        (egress.ip, before),
        egress=egress.name,
        uid=egress.uid,
        ip=egress.ip,
        pool=egress.pool,
        node=node.name,
        before=before,
        why=cause(facts, egress, node, before),
    )


def cause(facts: Facts, egress: Egress, node: ThisNode, before: str) -> Cause:
    """What speaks against the Node that had the address, or for this one."""
    was, member = facts.get(ClusterNode, before), facts.get(Member, before)
    pool = facts.get(PoolSelector, egress.pool)
    if was is None:
        return Cause("deleted: it is no Node any more", ClusterNode, before)
    if member is None or not member.alive:
        if member and member.left:
            return Cause("drained: its agent ends", Member, before)
        return Cause(f"dead: {member.why if member else 'never heard'}", Member, before)
    if pool and not meets(dict(was.labels), pool.nodes):
        return Cause("label: it no longer has those that the pool asks for", ClusterNode, before)
    if was.cordoned:
        return Cause("drained: it is cordoned", ClusterNode, before)
    wishes = egress.preferred
    if node.name in wishes and before not in wishes[: wishes.index(node.name)]:
        return Cause("preferred: the Egress names the new Node before it")
    return Cause("placement: of the Nodes that can hold it now, the new one is to")
