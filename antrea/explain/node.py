"""Policies on Nodes: rules that are for the Node itself, and what is let through before any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.explain.address import node_ips
from antrea.explain.packet import PORTED, family
from antrea.explain.policy import native_rules
from antrea.explain.rule import EGRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.explain.packet import Packet
    from antrea.explain.policy import Silent
    from antrea.explain.rule import Weighed
    from antrea.explain.world import World

NEIGHBOURS = range(133, 137)
"""Types of ICMPv6 by which neighbours and routers are found."""


def kept(packet: Packet) -> str:
    """Why no policy on Nodes is asked of this packet; empty if they are."""
    source, destination = packet.source, packet.destination
    if source.host and source.host == destination.host:
        return f"Node {source.host} reaches itself whatever policies say."
    if packet.protocol not in PORTED and family(source.ip) == 6 and packet.icmp_type in NEIGHBOURS:
        return "Neighbours and routers are found whatever policies say."
    return ""


def as_received(world: World, packet: Packet, direction: str) -> Packet:
    """Return the packet of a Pod as another Node, or a machine outside the cluster, receives it: its own Node masquerades it, unless noSNAT is set."""
    pod = packet.source.pod
    if world.pods_keep_addresses or direction == EGRESS or pod is None:
        return packet
    if pod.spec.node_name in ("", packet.destination.host):
        return packet
    node, wanted = world.nodes.get(pod.spec.node_name), family(packet.source.ip)
    node_ip = next((ip for ip in sorted(node_ips(node)) if family(ip) == wanted), "") if node else ""
    if node is not None:
        internal = (address.address for address in node.status.addresses if address.type == "InternalIP")
        node_ip = next((ip for ip in internal if family(ip) == wanted), node_ip)
    if not node_ip:
        return packet
    return msgspec.structs.replace(packet, source=world.owner(node_ip))


def node_rules(world: World, packet: Packet, node: str, direction: str) -> Iterator[Weighed | Silent]:
    """Rules for this Node, in no order; and those without effect there."""
    node_member = next(
        member for member in world.whole_members if member.kind == "node" and member.name == node
    )
    yield from native_rules(world, packet, node_member, direction)
