"""Check whether the answers of this Node for external IPs are received in its own networks, where the pool names no gateway.

Each Node of a pool probes gateways and other Nodes of the network: if none answers, its card is cut, or its switch port is. The
Node that answers for addresses also probes as each of them: a port that only passes the Node's own addresses (port security,
ARP inspection) drops what it answers for others. What has never answered is not missed. Upstream, MetalLB and Cilium have no
such check.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.engine import Act
from antrea.facts.external_ip import AnsweringNetwork, ExternalIPOwner
from antrea.facts.family import is_ipv6
from antrea.facts.member import (
    AgentNode,
    GossipMember,
    PoolMembers,
    PoolSelector,
    SilenceReport,
    SilentNetwork,
)
from antrea.facts.node import OnLink, ThisNode
from antrea.features.external_ip_pool.silence import silent_networks
from antrea.features.framework.gate import EnabledGates
from antrea.features.service_external_ip.subnet import owner_subnet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from antrea.engine import Facts

READS: Final = (
    AgentNode, EnabledGates, ExternalIPOwner, GossipMember, OnLink, PoolMembers, PoolSelector, SilenceReport
)  # fmt: skip
"""Kinds on which the networks to probe depend."""
MAX_NODES: Final = 2
"""Maximum number of other Nodes that one probes, beside its gateways: those that follow it by name."""


class AskedNetwork(NamedTuple):
    """A network of this Node in which a pool that selects it has external IPs of Services."""

    dev: str
    network: str
    """CIDR of the network."""
    nodes: tuple[str, ...]
    """Addresses of other Nodes in it."""
    ips: tuple[str, ...]
    """External IPs for which this Node answers."""
    silent: bool
    """Whether this Node has reported it as silent."""
    lost: bool = False
    """Whether the Node has no address in it any more, as when its cable is cut."""

    @property
    def key(self) -> tuple[str, str]:
        return self.dev, self.network


class RecordUnheard(Act, frozen=True):
    """Report in an Event of this Node that neighbours in a network do not answer it."""

    message: str


def asked_networks(facts: Facts, before: Collection[tuple[str, str]] = ()) -> list[AskedNetwork]:
    """Return the networks in which this Node is to probe its neighbors; `before` are keys of those in which neighbors have
    answered it.
    """
    this = facts.get(ThisNode)
    agent_node = facts.get(AgentNode, this.name) if this else None
    if agent_node is None:
        return []
    here = {(row.dev, row.cidr) for row in facts.all(OnLink)}
    places = [(ip_network(cidr), dev) for dev, cidr in here.union(before)]
    networks: dict[tuple[str, str], list[str]] = {}
    for owner in facts.all(ExternalIPOwner):
        members = facts.get(PoolMembers, owner.pool)
        if members is None or agent_node.name not in members.selected or owner_subnet(facts, owner):
            continue
        address = ip_address(owner.ip)
        near = [(network.prefixlen, dev, str(network)) for network, dev in places if address in network]
        if near:
            _, dev, network = max(near)
            ips = networks.setdefault((dev, network), [])
            ips += [owner.ip] if owner.node == agent_node.name else []
    silent = silent_networks(facts, agent_node)
    return [
        AskedNetwork(
            dev,
            network,
            _nodes(facts, agent_node.name, network),
            tuple(sorted(ips)),
            network in silent,
            (dev, network) not in here,
        )
        for (dev, network), ips in sorted(networks.items())
    ]


def _nodes(facts: Facts, me: str, cidr: str) -> tuple[str, ...]:
    """Return addresses of living Nodes, from this one on, round the ring of names."""
    network = ip_network(cidr)
    living = {row.node for row in facts.all(GossipMember) if row.alive}
    rows = sorted(
        (row for row in facts.all(AgentNode) if row.name in living), key=lambda row: (row.name < me, row.name)
    )
    inside = (
        next((ip for ip in (*row.ips, *row.transport_ips) if ip_address(ip) in network), "") for row in rows
    )
    return tuple(islice(filter(None, inside), MAX_NODES))


def unheard_networks(facts: Facts, node: ThisNode) -> Iterator[SilentNetwork | RecordUnheard]:
    """Yield the silent networks; the last report counts until there is a result."""
    agent_node = facts.get(AgentNode, node.name)
    rows = {row.network: row for row in facts.all(AnsweringNetwork)}
    before = silent_networks(facts, agent_node) if agent_node else ()
    pools = facts.all(PoolSelector)
    for name in sorted({*rows, *(name for name in before if _is_cidr(name))}):
        row = rows.get(name)
        if row is None and not any(pool.reaches(name) for pool in pools):
            continue
        if row is None or not row.answers or row.unheard:
            yield SilentNetwork(name)
        if row and (why := unheard_text(row, node.name)):
            yield RecordUnheard(name, (row.answers, row.unheard), message=why)


def _is_cidr(name: str) -> bool:
    try:
        return str(ip_network(name)) == name
    except ValueError:
        return False


def unheard_texts(facts: Facts, node: str) -> list[str]:
    """Return the texts on all networks in which neighbors do not answer the Node."""
    rows = sorted(facts.all(AnsweringNetwork), key=lambda row: row.key)
    return [text for row in rows if (text := unheard_text(row, node))]


def unheard_text(row: AnsweringNetwork, node: str) -> str:
    """Return why the Node counts as unanswered, and what to check; empty if it does not."""
    others = "; as long as other Nodes can, they answer for the external IPs of Services in it"
    if not row.answers and not row.targets:
        return f"Node {node} has no address in {row.network} on {row.dev} any more{others}"
    if not row.answers:
        probed = ", ".join(row.targets)
        return (
            f"no neighbour answers Node {node} in {row.network} on {row.dev}, probed at {probed}:"
            f" the Node has to have a cable that leads to it{others}"
        )
    if row.unheard:
        kind = "neighbour discovery" if is_ipv6(row.unheard) else "ARP"
        return (
            f"neighbours in {row.network} answer Node {node} on {row.dev}, but no longer as {row.unheard}:"
            f" its switch port has to pass {kind} with addresses that are not the Node's own{others}"
        )
    return ""
