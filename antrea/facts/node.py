"""Nodes, as the agent sees them."""

from __future__ import annotations

from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6


class ThisNode(Fact, frozen=True):
    """The Node this agent runs on; bootstrap and the Node feed write it."""

    name: str
    pod_cidrs: tuple[str, ...] = ()
    """Pod CIDRs of this Node, at most one per family, IPv4 first: ("10.244.1.0/24", "fd00:10:244:1::/64")."""
    node_ips: tuple[str, ...] = ()
    """InternalIPs, at most one per family, IPv4 first, no prefix length."""
    transport_ips: tuple[str, ...] = ()
    """Addresses that tunnels end at; the same as `node_ips` unless a transport interface is configured."""
    mtu: int = 1450
    """MTU of Pod interfaces and of the gateway."""
    is_machine: bool = False
    """A machine outside the cluster: it has no Pods, and its name is that of its ExternalNode after the Namespace and a slash."""
    uid: str = ""
    """UID of the Node object; empty of a machine outside the cluster."""

    @property
    def families(self) -> frozenset[bool]:
        """Families in which the Node has Pods; True is IPv6. Both, of a machine outside the cluster."""
        if self.is_machine:
            return frozenset({False, True})
        return frozenset(is_ipv6(cidr) for cidr in self.pod_cidrs)


class Transport(Fact, frozen=True):
    """The interface by which this Node reaches other Nodes; bootstrap writes it."""

    interface: str
    """The network card: eth1."""
    device: str
    """Device with its addresses: the card itself, or br-phy when OVS runs in user space and owns the card."""
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    """With prefix length."""
    routes: tuple[tuple[str, str], ...] = ()
    """Destination and next hop of the card's routes through a router; ("", next hop) is a default route."""


class PeerNode(Fact, frozen=True):
    """Another Node that has Pod CIDRs and an address to reach it by; derived."""

    name: str
    pod_cidrs: tuple[str, ...]
    node_ips: tuple[str, ...]
    transport_ips: tuple[str, ...]
    """Addresses from annotation node.antrea.io/transport-addresses, else `node_ips`."""
    mac: str = ""
    """MAC address of its card on the network of the Nodes; empty: unknown."""

    @property
    def key(self) -> str:
        return self.name


class LocalAddress(Fact, frozen=True):
    """An address of an interface of this Node, neither of loopback nor link-local; the netlink feed writes it."""

    ip: str
    """Address as Python writes it, without prefix length."""
    dev: str
    prefix: int = 128
    """Bits of the network that it is in, as far as `dev` goes; all of them: none."""

    @property
    def key(self) -> str:
        return self.ip


class LocalLink(Fact, frozen=True):
    """An interface of this Node; the netlink feed writes it."""

    name: str
    index: int
    """Another one for an interface that was removed and made anew under its name."""

    @property
    def key(self) -> str:
        return self.name


class OnLink(Fact, frozen=True):
    """A network whose hosts are neighbours on an interface of this Node; derived."""

    dev: str
    cidr: str

    @property
    def key(self) -> str:
        return f"{self.dev} {self.cidr}"
