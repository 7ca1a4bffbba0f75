"""What the agent knows of Nodes."""

from __future__ import annotations

from antrea.facts.fact import Fact


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


class PeerNode(Fact, frozen=True):
    """Another Node that has Pod CIDRs and an address to reach it by."""

    name: str
    pod_cidrs: tuple[str, ...]
    node_ips: tuple[str, ...]
    transport_ips: tuple[str, ...]
    """From annotation node.antrea.io/transport-addresses, else `node_ips`."""

    @property
    def key(self) -> str:
        return self.name
