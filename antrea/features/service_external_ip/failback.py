"""Failback of an external IP to the better Node: immediate, never, or when no connection uses it, as for Egress IPs.

A Service has no field for its Node, and agents have no right to write its status. So a Node that answers for an address that it
is to keep writes that into an annotation of its own Node, which all agents read. One that was lost and is back still has its
annotation: the next one took a higher number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.annotation import KEPT_EXTERNAL_IPS, NodeAnnotation
from antrea.engine import Act
from antrea.facts.egress import UnusedAddress
from antrea.facts.external_ip import ExternalIPOwner, OwnClaims
from antrea.facts.member import HIGHEST_NUMBER, MAX_KEPT, AgentNode, KeptAddress
from antrea.facts.node import ThisNode
from antrea.facts.service import Service
from antrea.features.external_ip_pool.pool import IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from antrea.engine import Facts


class Keeper(NamedTuple):
    """The Node that answered for an address last."""

    node: str
    idle: bool


class RecordFailbackWaits(Act, frozen=True):
    """Report in an Event of the Service that connections keep its external IP from a better Node."""

    service: str
    uid: str
    message: str


def keeper_of(facts: Facts, ip: str, nodes: Collection[str], me: str) -> Keeper | None:
    """Return the keeper among these Nodes."""
    own_claims = facts.get(OwnClaims)
    claims = [
        (row.name, row.kept)
        for row in facts.by(AgentNode, "kept", ip)
        if own_claims is None or row.name != me
    ]
    if own_claims:
        claims.append((me, own_claims.kept))
    kept = [
        (claim.number, name, claim.idle)
        for name, kept in claims
        if name in nodes
        for claim in kept
        if claim.ip == ip
    ]
    if not kept:
        return None
    _, name, idle = max(kept)
    return Keeper(name, idle)


def next_claims(facts: Facts, node: str, before: Mapping[str, KeptAddress]) -> dict[str, KeptAddress]:
    """Return the claims of this Node, by address: those for which it answers, and those that no other Node has claimed since.

    `before` is what it claimed so far. Its annotation in the API may be older: two Nodes that relied on it would exceed each
    other for ever.
    """
    owners = {row.ip: row for row in facts.all(ExternalIPOwner)}
    claims = {
        ip: claim for ip, claim in before.items() if not _is_given_up(facts, claim, node, owners.get(ip))
    }
    for ip, row in owners.items():
        if row.keeps and row.node == node:
            previous, highest = before.get(ip), _highest(facts, ip, node)
            number = (
                previous.number
                if previous and previous.number > highest
                else min(highest + 1, HIGHEST_NUMBER)
            )
            claims[ip] = KeptAddress(ip, number, _is_idle(facts, row))
    return claims


def _is_given_up(facts: Facts, kept: KeptAddress, node: str, owner: ExternalIPOwner | None) -> bool:
    """Whether a claim has ended: when a higher one of the next Node is in the API; that one's number would depend on which is
    read first.
    """
    if owner is None:
        return facts.feeds.has(Service) and not facts.by(Service, "pooled", kept.ip)
    if not owner.node:
        return False
    return not owner.keeps or _highest(facts, kept.ip, node) > kept.number


def _highest(facts: Facts, ip: str, node: str) -> int:
    """Return the highest number of all other Nodes that claim it, whether they live or not."""
    others = (row for row in facts.by(AgentNode, "kept", ip) if row.name != node)
    return max((claim.number for row in others for claim in row.kept if claim.ip == ip), default=0)


def _is_idle(facts: Facts, owner: ExternalIPOwner) -> bool:
    return bool(owner.home) and facts.get(UnusedAddress, owner.ip) is not None


def claim_annotation(facts: Facts, claims: OwnClaims) -> Iterator[NodeAnnotation]:
    """Yield the annotation of this Node."""
    this = facts.get(ThisNode)
    if this:
        text = ",".join(
            f"{claim.ip}={claim.number}{':idle' * claim.idle}" for claim in sorted(claims.kept)[:MAX_KEPT]
        )
        yield NodeAnnotation(this.name, KEPT_EXTERNAL_IPS, text)


def failback_waits(_facts: Facts, owner: ExternalIPOwner, service: Service) -> Iterator[RecordFailbackWaits]:
    """Yield an Event each time that it begins, on the Node that answers."""
    if owner.home:
        yield RecordFailbackWaits(
            owner.key, (owner.ip, owner.home), service=owner.service, uid=service.uid,
            message=f"{owner.ip} stays at Node {owner.node} until no connection has used it for {IDLE_SECONDS} s;"
            f" then it goes to Node {owner.home}",
        )  # fmt: skip
