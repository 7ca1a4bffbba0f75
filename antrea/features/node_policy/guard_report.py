"""Report of rules that would cut what the guard keeps: their policies' statuses name it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.fact import Fact
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.facts.router import RouterSession
from antrea.features.network_policy.agent.match import address_text, networks
from antrea.features.network_policy.agent.verdict import DENIES
from antrea.features.node_policy.guard import NODES, ROUTERS, SERVERS, Kept, kept
from antrea.features.node_policy.rule import NodePeerGroup, NodeRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ipaddress import IPv4Network, IPv6Network

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts
    from antrea.features.network_policy.agent.received import SentAddressMember

SERVER = "kube-apiserver"


class GuardedPeer(Fact, frozen=True):
    """A group that rules name has a member that the guard keeps; derived."""

    peers: str
    """NODES, SERVERS or ROUTERS."""
    group: str

    @property
    def key(self) -> str:
        return f"{self.peers} {self.group}"


def guarded_peers(facts: Facts, row: SentAddressMember) -> Iterator[GuardedPeer]:
    """The report of a member on its group."""
    if facts.get(NodePeerGroup, row.group) is None:
        return
    for text in map(address_text, row.member.ips):
        if facts.by(AgentNode, "ip", text):
            yield GuardedPeer(NODES, row.group)
        if facts.by(ApiServerEndpoint, "ip", text):
            yield GuardedPeer(SERVERS, row.group)
        if facts.get(RouterSession, text) is not None:
            yield GuardedPeer(ROUTERS, row.group)


def prevented_cuts(facts: Facts, policy: str) -> Iterator[tuple[str, str]]:
    """Yield the name of a rule of this policy, and what it would cut."""
    node = facts.get(ThisNode)
    for rule in facts.by(NodeRule, "policy", policy) if node else ():
        if node and rule.action in DENIES and (names := list(dict.fromkeys(_cut(facts, node, rule)))):
            yield rule.rule.name, ", ".join(names)


def _cut(facts: Facts, node: ThisNode, rule: NodeRule) -> Iterator[str]:
    direction = "egress" if rule.egress else "ingress"
    servers = facts.all(ApiServerEndpoint)
    node_ips = {*node.node_ips, *node.transport_ips}
    for server in servers:
        if rule.egress or server.ip in node_ips:
            peers = SERVERS if rule.egress else NODES
            if _meets(facts, rule, Kept(SERVER, (direction,), ("tcp",), (server.port,), peers)):
                yield SERVER
    for one_kept in kept(facts, node.name):
        if direction in one_kept.directions and _meets(facts, rule, one_kept):
            yield one_kept.name


def _meets(facts: Facts, rule: NodeRule, kept_item: Kept) -> bool:
    """Whether a connection that is kept is one that the rule denies."""
    services = rule.rule.services
    return (not services or any(_has_port(each, kept_item) for each in services)) and _has_peer(
        facts, rule, kept_item
    )


def _has_port(service: cp.Service, kept_item: Kept) -> bool:
    if (service.protocol or "TCP").lower() not in kept_item.protocols or isinstance(service.port, str):
        return False
    first = service.port
    return not first or any(first <= port <= max(first, service.end_port or 0) for port in kept_item.ports)


def _has_peer(facts: Facts, rule: NodeRule, kept_item: Kept) -> bool:
    peer = rule.peer
    if not kept_item.peers:
        return bool(peer.ip_blocks or peer.address_groups)
    if any(facts.get(GuardedPeer, f"{kept_item.peers} {group}") is not None for group in peer.address_groups):
        return True
    left = [network for block in peer.ip_blocks for network in networks(block)]
    return any(network.prefixlen == 0 for network in left) or _contained(
        left, _addresses(facts, kept_item.peers)
    )


def _addresses(facts: Facts, peers: str) -> Iterator[str]:
    if peers == SERVERS:
        yield from (row.ip for row in facts.all(ApiServerEndpoint))
        return
    if peers == ROUTERS:
        yield from (row.address for row in facts.all(RouterSession))
        return
    for row in facts.all(AgentNode):
        yield from row.ips


def _contained(left: Iterable[IPv4Network | IPv6Network], addresses: Iterator[str]) -> bool:
    networks = list(left)
    return bool(networks) and any(ip_address(text) in network for text in addresses for network in networks)
