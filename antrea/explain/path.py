"""Path of a packet between two Nodes: through a tunnel, or routed with the addresses of its Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.explain.packet import family
from antrea.explain.service import are_neighbours

if TYPE_CHECKING:
    from antrea.explain.packet import End, Packet
    from antrea.explain.world import World


class NodeLinks(NamedTuple):
    """Configuration of the traffic between Nodes."""

    mode: str = "encap"
    """trafficEncapMode."""
    tunnel: str = "geneve"
    """tunnelType."""


DEFAULT_LINKS = NodeLinks()


def path(world: World, packet: Packet) -> str:
    """Return the path to a Pod of another Node in words; empty if the packet stays on its Node or leaves the cluster."""
    first, last = _node(packet.source), _node(packet.destination)
    if packet.destination.pod is None or not first or first == last:
        return ""
    ends = f"from Node {first} to Node {last}"
    if needs_tunnel(world, first, last, family(packet.destination.ip)):
        return f"{world.links.tunnel} tunnel {ends}"
    return f"route without a tunnel {ends}"


def needs_tunnel(world: World, first: str, last: str, v: int) -> bool:
    """Whether packets for Pods of Node `last` are sent through a tunnel by Node `first`, in IPv4 or IPv6."""
    if world.links.mode == "hybrid":
        return not are_neighbours(world.nodes.get(first), world.nodes.get(last), v)
    return world.links.mode == "encap"


def _node(end: End) -> str:
    return end.pod.spec.node_name if end.pod else end.host
