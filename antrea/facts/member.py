"""Membership: which Nodes may have an agent, which agents are alive, and whether they are a majority."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import ClassVar, Final, NamedTuple

from antrea.facts.fact import Fact
from antrea.facts.group import Requirement

MAX_KEPT: Final = 4096
"""Addresses of one Node: with these its annotation has 200 kB, of 256 kB that the API allows."""
HIGHEST_NUMBER: Final = 999_999_999


class KeptAddress(NamedTuple):
    """External IP of Services that a Node answers for, and keeps while more suitable Nodes are alive."""

    ip: str
    number: int
    """Order of takeovers: of the Nodes that keep one address, the one with the highest number was the last to take it."""
    idle: bool = False
    """No connection has used it for a while: it goes to a better Node."""


class AgentNode(Fact, frozen=True):
    """A Node with Pod CIDRs and addresses, this one, too; the Node feed writes it."""

    name: str
    ips: tuple[str, ...]
    """InternalIPs, at most one per family, IPv4 first."""
    transport_ips: tuple[str, ...]
    """Addresses for gossip, from annotation node.antrea.io/transport-addresses, else `ips`."""
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted."""
    most_egress_ips: int | None = None
    """Limit from annotation node.antrea.io/max-egress-ips; None: as in the configuration."""
    pod_cidrs: tuple[str, ...] = ()
    """At most one per family, IPv4 first."""
    gossips: bool = True
    """Whether its agent does: those on Linux do."""
    cordoned: bool = False
    """spec.unschedulable"""
    being_removed: bool = False
    """The cluster autoscaler is about to delete it, or its object is being deleted."""
    not_ready: bool = False
    """Kubernetes does not find its kubelet ready: it has the taint of that."""
    ssh_ports: tuple[int, ...] = ()
    """Ports that no policy closes, from annotation node.antrea.io/keep-ssh."""
    external_ips: tuple[str, ...] = ()
    """ExternalIPs, at most one per family, IPv4 first."""
    kept: tuple[KeptAddress, ...] = ()
    """Addresses from annotation service.antrea.io/kept-external-ips."""
    silent: tuple[str, ...] = ()
    """Networks from annotation node.antrea.io/silent-subnets, as `SilentNetwork` names them; a `SilenceReport` of the Node is newer."""
    mac: str = ""
    """MAC address of the card on the network of the Nodes, from annotation node.antrea.io/link; empty: its agent has published none."""

    indexes: ClassVar[Mapping[str, Callable[[AgentNode], Iterable[Hashable]]]] = {
        "ip": lambda row: row.ips,
        "address": lambda row: {*row.ips, *row.transport_ips, *row.external_ips},
        "pod_cidr": lambda row: row.pod_cidrs,
        "kept": lambda row: {address.ip for address in row.kept},
    }

    @property
    def key(self) -> str:
        return self.name


class GossipMember(Fact, frozen=True):
    """Another Node's agent, as gossip finds it; one that is merely suspected lives. The gossip feed writes it."""

    node: str
    alive: bool
    left: bool = False
    """It left a moment ago, so that it may still hold addresses that it hands over."""
    why: str = ""
    """Evidence for the state."""

    @property
    def key(self) -> str:
        return self.node

    @property
    def may_hold(self) -> bool:
        """Whether its Node may hold addresses, and track connections to them."""
        return self.alive or self.left


class SilentNetwork(Fact, frozen=True):
    """A network in which neighbours do not answer this Node, so that addresses in it are better at another one; derived."""

    name: str
    """Name of the network as `PoolSelector.subnet` names that of a pool; one of the Node's own is a CIDR."""

    @property
    def key(self) -> str:
        return self.name


class SilenceReport(Fact, frozen=True):
    """All silent networks of a Node, this one, too, as its agent sends them by gossip; the parts of gossip and of pools write it."""

    node: str
    networks: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.node


class AgentLeaving(Fact, frozen=True):
    """This agent is about to end for good, and hands over what it holds; its farewell writes it."""


class Quorum(Fact, frozen=True):
    """Whether this agent is with the majority of all, and has been for a while; the gossip feed writes it."""

    has: bool
    alive: int
    """Agents that live, this one among them."""
    of: int


class PoolSelector(Fact, frozen=True):
    """The Nodes that may hold addresses of an ExternalIPPool; the agent's pool feed writes it."""

    pool: str
    nodes: tuple[Requirement, ...]
    """None: all."""
    gateway: str = ""
    """Router of the addresses' subnet; empty: they are of the Nodes' own."""
    prefix: int = 0
    """Length of the subnet's prefix."""
    vlan: int = 0
    """VLAN of the subnet; 0: untagged."""
    ranges: tuple[tuple[int, int, int], ...] = ()
    """Addresses that it has to give: family (4 or 6), and the first and the last one as numbers."""

    @property
    def subnet(self) -> str:
        """Its subnet, whose gateway Nodes ask whether it is there; empty: none."""
        return f"{self.gateway}/{self.prefix}@{self.vlan}" if self.gateway else ""

    def has(self, ip: str) -> bool:
        """Whether it has this address to give."""
        address = ip_address(ip)
        return any(kind == address.version and low <= int(address) <= high for kind, low, high in self.ranges)

    def reaches(self, network: str) -> bool:
        """Whether any of its addresses is in the network with this CIDR."""
        there = ip_network(network)
        first, last = int(there.network_address), int(there.broadcast_address)
        return any(kind == there.version and low <= last and first <= high for kind, low, high in self.ranges)

    @property
    def key(self) -> str:
        return self.pool


class PoolMembers(Fact, frozen=True):
    """Nodes of an ExternalIPPool whose agents live, sorted by name, the better ones first; derived."""

    pool: str
    nodes: tuple[str, ...]
    cordoned: tuple[str, ...] = ()
    """Nodes that are chosen only if no other can: cordoned ones, and those with silent neighbours in a network of the pool."""
    leaving: tuple[str, ...] = ()
    """Only if no other can at all."""
    selected: tuple[str, ...] = ()
    """All that the pool selects, whether they live or not."""

    @property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Nodes by order of preference."""
        return self.nodes, self.cordoned, self.leaving

    @property
    def key(self) -> str:
        return self.pool


class EgressCandidate(Fact, frozen=True):
    """A Node that may hold addresses of some pool; derived."""

    node: str
    address: str
    """Where tunnels to it end."""

    @property
    def key(self) -> str:
        return self.node


class BfdPartner(Fact, frozen=True):
    """Another candidate that this one watches, and is watched by, by BFD; derived."""

    node: str
    address: str
    multiplier: int
    """Packets that must be missing."""

    @property
    def key(self) -> str:
        return self.node
