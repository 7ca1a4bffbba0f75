"""When an external IP goes back to the better Node: at once, never, or when no connection uses it, as Egress IPs do.

A Service has no field for its Node, and agents have no right to write its status. So who answers for an address that it is to keep
writes that into an annotation of its own Node, which all agents read. One that was lost and is back still has its annotation: the
next one took a higher number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.annotation import KEPT_EXTERNAL_IPS, NodeAnnotation
from antrea.engine import Act
from antrea.facts.egress import UnusedAddress
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.member import HIGHEST_NUMBER, MOST_KEPT, AgentNode, KeptAddress
from antrea.facts.service import Service
from antrea.features.egress.failback import IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode


class Keeper(NamedTuple):
    """The Node that answered for an address last."""

    node: str
    idle: bool


class RecordFailbackWaits(Act, frozen=True):
    """Report in an Event of the Service that connections keep its external IP from a better Node."""

    service: str
    uid: str
    message: str


def keeper_of(facts: Facts, ip: str, nodes: Collection[str]) -> Keeper | None:
    """Of these Nodes."""
    kept = [
        (one.number, row.name, one.idle)
        for row in facts.by(AgentNode, "kept", ip)
        if row.name in nodes
        for one in row.kept
        if one.ip == ip
    ]
    if not kept:
        return None
    _, name, idle = max(kept)
    return Keeper(name, idle)


def kept_addresses(facts: Facts, node: ThisNode) -> Iterator[NodeAnnotation]:
    """Of this Node: those for which it answers, and for which no other Node is found to."""
    own = facts.get(AgentNode, node.name)
    if own is None:
        return
    before = {one.ip: one for one in own.kept}
    owners = facts.all(ExternalIPOwner)
    ours = {row.ip: row for row in owners if row.keeps and row.node == node.name}
    settled = {row.ip for row in owners if row.node}
    named = facts.feeds.has(Service)
    unsettled = [ip for ip in before if ip not in settled and (not named or facts.by(Service, "pooled", ip))]
    kept = [
        KeptAddress(ip, _number(facts, ip, node.name), _is_idle(facts, ours[ip])) for ip in ours
    ] + [before[ip] for ip in unsettled]  # fmt: skip
    text = ",".join(f"{one.ip}={one.number}{':idle' * one.idle}" for one in sorted(kept)[:MOST_KEPT])
    yield NodeAnnotation(node.name, KEPT_EXTERNAL_IPS, text)


def _number(facts: Facts, ip: str, node: str) -> int:
    """Higher than those of all others, whether they live or not."""
    numbers = {
        row.name: one.number for row in facts.by(AgentNode, "kept", ip) for one in row.kept if one.ip == ip
    }
    own = numbers.pop(node, 0)
    highest = max(numbers.values(), default=0)
    return own if own > highest else min(highest + 1, HIGHEST_NUMBER)


def _is_idle(facts: Facts, owner: ExternalIPOwner) -> bool:
    return bool(owner.home) and facts.get(UnusedAddress, owner.ip) is not None


def failback_waits(facts: Facts, owner: ExternalIPOwner, service: Service) -> Iterator[RecordFailbackWaits]:
    """Each time that it begins, on the Node that answers."""
    if owner.home:
        yield RecordFailbackWaits(
            owner.key, (owner.ip, owner.home), service=owner.service, uid=service.uid,
            message=f"{owner.ip} stays at Node {owner.node} until no connection has used it for {IDLE_SECONDS} s;"
            f" then it goes to Node {owner.home}",
        )  # fmt: skip
