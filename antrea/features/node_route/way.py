"""Path of packets to the Pods of another Node: through the tunnel, or unencapsulated over the network of the Nodes.

parity: pkg/agent/config/node_config.go NeedsTunnelToPeer, NeedsDirectRoutingToPeer
"""

from __future__ import annotations

from ipaddress import ip_address, ip_interface
from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import PeerNode, ThisNode


def shared_cidrs(node: ThisNode, peer: PeerNode) -> Iterator[str]:
    """Yield the peer's Pod CIDRs of the families that the Pods of this Node have, too; its tables serve no other."""
    families = node.families
    return (cidr for cidr in peer.pod_cidrs if is_ipv6(cidr) in families)


def tunnel_end(node: ThisNode, peer: PeerNode) -> str | None:
    """Return the address of the peer that tunnels end at: of a family in which both Nodes have one, IPv4 first."""
    families = {is_ipv6(address) for address in node.transport_ips}
    return next((address for address in peer.transport_ips if is_ipv6(address) in families), None)


def direct_hop(link: Transport, peer: PeerNode, *, ipv6: bool) -> str:
    """Return the peer's address of this family, if it is on a network of the transport interface; empty if routers are in
    between.
    """
    networks = [ip_interface(address).network for address in link.addresses]
    ends = (end for end in peer.transport_ips if is_ipv6(end) == ipv6)
    return next((end for end in ends if any(ip_address(end) in network for network in networks)), "")


def needs_tunnel(facts: Facts, peer: PeerNode, *, ipv6: bool) -> bool:
    """Return whether packets to the peer's Pods of a family go through the tunnel: in mode hybrid if routers are in between."""
    config = facts.need(AgentConfig)
    if config.traffic_encap_mode == "hybrid":
        return not direct_hop(facts.need(Transport), peer, ipv6=ipv6)
    return config.has_tunnel
