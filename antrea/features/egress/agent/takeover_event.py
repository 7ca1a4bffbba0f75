"""Event on a takeover of an Egress IP: which Node took it over, from which and why, by the Node that has it now.

Upstream's Event only names the Node of an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.engine import Act
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, SilenceReport
from antrea.features.external_ip_pool.silence import silence_of
from antrea.features.grouping.selector import meets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.engine import Facts
    from antrea.facts.egress import Egress
    from antrea.facts.fact import Fact
    from antrea.facts.node import ThisNode


class Cause(NamedTuple):
    """Reason why an address moved, and the row; without a kind it is whichever change came last."""

    why: str
    kind: type[Fact] | None = None
    row: str = ""


class RecordTakeover(Act, frozen=True):
    """Event on why `node` has the address of an Egress now, which `before` had, and how long that took."""

    egress: str
    uid: str
    ip: str
    pool: str
    node: str
    before: str
    why: Cause


def took_over(facts: Facts, egress: Egress, node: ThisNode) -> Iterator[RecordTakeover]:
    """Yield the Event as long as the status names another Node for the address that is here."""
    before = egress.node if egress.held == egress.ip else ""
    if before in ("", node.name):
        return
    yield RecordTakeover(
        egress.key,
        (egress.ip, before),
        egress=egress.name,
        uid=egress.uid,
        ip=egress.ip,
        pool=egress.pool,
        node=node.name,
        before=before,
        why=cause(facts, egress.pool, egress.preferred, node.name, before),
    )


def cause(facts: Facts, pool_name: str, preferred: Sequence[str], me: str, before: str) -> Cause:
    """Return the reason against the Node that had the address, or for this one."""
    was, member = facts.get(AgentNode, before), facts.get(GossipMember, before)
    pool = facts.get(PoolSelector, pool_name)
    if was is None:
        return Cause("deleted: it is not a Node any more", AgentNode, before)
    if member is None or not member.alive:
        if member and member.left:
            return Cause("drained: its agent ends", GossipMember, before)
        return Cause(f"dead: {member.why if member else 'never heard'}", GossipMember, before)
    if pool and not meets(dict(was.labels), pool.nodes):
        return Cause("label: it no longer has those that the pool asks for", AgentNode, before)
    if was.cordoned:
        return Cause("drained: it is cordoned", AgentNode, before)
    if pool and (network := silence_of(facts, was, pool)):
        vlan = f" in VLAN {pool.vlan}" if pool.vlan else ""
        text = (
            f"gateway: {pool.gateway} does not answer it{vlan}" if pool.subnet else f"unheard: in {network}"
        )
        return Cause(text, SilenceReport if facts.get(SilenceReport, before) else AgentNode, before)
    if me in preferred and before not in preferred[: preferred.index(me)]:
        return Cause("preferred: the new Node is named before it")
    return Cause("placement: of the Nodes that can hold it now, the new one is to")
