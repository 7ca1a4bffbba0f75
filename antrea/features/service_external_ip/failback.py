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
from antrea.features.egress.agent.failback import IDLE_SECONDS

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
    """Of this Node: those for which it answers, and those that no other Node has claimed since."""
    own = facts.get(AgentNode, node.name)
    if own is None:
        return
    owners = {row.ip: row for row in facts.all(ExternalIPOwner)}
    kept = [one for one in own.kept if not _is_given_up(facts, one, node.name, owners.get(one.ip))]
    for ip, row in owners.items():
        if row.keeps and row.node == node.name:
            kept = [one for one in kept if one.ip != ip]
            kept.append(KeptAddress(ip, _number(facts, ip, node.name), _is_idle(facts, row)))
    text = ",".join(f"{one.ip}={one.number}{':idle' * one.idle}" for one in sorted(kept)[:MOST_KEPT])
    yield NodeAnnotation(node.name, KEPT_EXTERNAL_IPS, text)


def _is_given_up(facts: Facts, kept: KeptAddress, node: str, owner: ExternalIPOwner | None) -> bool:
    """A claim stands until a higher one of the next Node is in the API: that one's number would depend on which is read first."""
    if owner is None:
        return facts.feeds.has(Service) and not facts.by(Service, "pooled", kept.ip)
    if not owner.node:
        return False
    numbers = _numbers(facts, kept.ip)
    return not owner.keeps or max(numbers.values(), default=0) > kept.number


def _numbers(facts: Facts, ip: str) -> dict[str, int]:
    """Of all Nodes that claim it, whether they live or not."""
    return {
        row.name: one.number for row in facts.by(AgentNode, "kept", ip) for one in row.kept if one.ip == ip
    }


def _number(facts: Facts, ip: str, node: str) -> int:
    """Higher than those of all others."""
    numbers = _numbers(facts, ip)
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
