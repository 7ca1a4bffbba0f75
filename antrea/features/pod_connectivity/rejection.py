"""Answer to a packet that a rule rejects: its apparent sender, and its path to the client.

parity: pkg/agent/controller/networkpolicy/reject.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.node_route.way import needs_tunnel
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.host.pod_cidr import gateway_ip, held
from antrea.openflow.fields import (
    EP_SELECTED_REG_MARK,
    GENERATED_REJECT_PACKET_OUT,
    GENERATED_REJECT_PACKET_OUT_REG_MARK,
    SERVICE_EP_STATE,
    SVC_NO_EP_REG_MARK,
)
from antrea.openflow.match import LOCAL_PORT
from antrea.openflow.packet_out import PacketOut
from antrea.openflow.rejection import answer
from antrea.openflow.tables import L3_FORWARDING

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn


class End(NamedTuple):
    """End of a connection on this Node: a Pod, or the gateway for the Node itself."""

    ofport: int
    mac: bytes


class Way(NamedTuple):
    """Path of an answer: its apparent sender and its receiver; no client means that it is routed."""

    server: End
    client: End | None
    mac: bytes
    """Destination MAC address of the frame."""


def rejection(facts: Facts, packet_in: PacketIn, rejected: Packet) -> PacketOut | None:
    """Make the answer; None if there is none, or no path for it. A rejected answer of the agent has none."""
    if (node := facts.get(ThisNode)) is not None and node.is_machine:
        return _machine_rejection(facts, packet_in, rejected)
    realized = facts.get(RealizedPipeline)
    way = _way(facts, packet_in, rejected)
    if realized is None or way is None or packet_in.value(GENERATED_REJECT_PACKET_OUT):
        return None
    unserved = bool(packet_in.value(SVC_NO_EP_REG_MARK.field))
    frame = answer(rejected, way.server.mac, way.mac, unserved=unserved)
    if frame is None:
        return None
    marks = (GENERATED_REJECT_PACKET_OUT_REG_MARK,)
    if _is_balanced(packet_in) and (way.client is None or packet_in.in_port == way.client.ofport):
        # The client has asked a Service: the whole pipeline, with connection tracking, gives the answer its address.
        return PacketOut(frame, way.server.ofport, marks)
    if way.client:
        return PacketOut(frame, way.server.ofport, marks, out_port=way.client.ofport)
    return PacketOut(frame, way.server.ofport, marks, table=realized.pipeline.id(L3_FORWARDING.name))


def _machine_rejection(facts: Facts, packet_in: PacketIn, rejected: Packet) -> PacketOut | None:
    """Make the answer on a machine outside the cluster: back where the packet came from, as if from the other port of the pair."""
    frame = answer(rejected, rejected.destination_mac, rejected.source_mac)
    for interface in facts.all(PodInterface) if frame is not None else ():
        card = facts.get(OvsPort, interface.uplink)
        ports = {interface.ofport: card.ofport, card.ofport: interface.ofport} if card else {}
        if frame is not None and packet_in.in_port in ports:
            return PacketOut(frame, ports[packet_in.in_port], out_port=packet_in.in_port)
    return None


def _is_balanced(packet_in: PacketIn) -> bool:
    """Whether AntreaProxy has chosen the destination, in this switch."""
    chosen = packet_in.value(SERVICE_EP_STATE) == EP_SELECTED_REG_MARK.value
    return chosen and not packet_in.value(SVC_NO_EP_REG_MARK.field)


def _way(facts: Facts, packet_in: PacketIn, rejected: Packet) -> Way | None:
    """Return the path; None without a gateway, and if neither end is on this Node nor reached through it.

    Addresses of frames are chosen here: those of the packet may carry marks (see antrea/host/carrier.py).
    """
    config = facts.get(AgentConfig)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if gateway is None:
        return None
    host = End(gateway.ofport, _bytes(gateway.mac))
    client, server = (_end(facts, host, ip) for ip in (rejected.source, rejected.destination))
    if client is None and server is None and packet_in.in_port == host.ofport:
        # Neither end is a Pod here. An Endpoint that is a host is reached by the gateway, too, and answers by it; of a
        # Service without Endpoint the Node routes the answer.
        return Way(host if _is_balanced(packet_in) else End(LOCAL_PORT, host.mac), host, host.mac)
    if client is None:
        return Way(server, None, host.mac) if server else None
    if packet_in.in_port == host.ofport:
        # For a Pod of this Node, kube-proxy has chosen this destination, and has to undo that in the answer.
        return Way(
            server or End(_remote_port(facts, packet_in, host, rejected.destination), host.mac),
            host,
            host.mac,
        )
    return Way(server or host, client, client.mac)


def _remote_port(facts: Facts, packet_in: PacketIn, host: End, destination: str) -> int:
    """Return the port of answers from others than this Node's Pods. What is reached without a tunnel is behind the gateway, to
    which nothing goes that came from it.
    """
    tunnel = facts.get(OvsPort, TUNNEL_PORT)
    if tunnel is not None and not _is_routed(facts, destination):
        return tunnel.ofport
    return host.ofport if _is_balanced(packet_in) else LOCAL_PORT


def _is_routed(facts: Facts, ip: str) -> bool:
    """Whether the address is of a Pod of another Node that is reached without a tunnel, though there are tunnels."""
    peers = (peer for peer in facts.all(PeerNode) if held(ip, peer.pod_cidrs))
    return any(not needs_tunnel(facts, peer, ipv6=is_ipv6(ip)) for peer in peers)


def _end(facts: Facts, host: End, ip: str) -> End | None:
    for pod in facts.by(PodInterface, "ip", ip):
        return End(pod.ofport, _bytes(pod.mac))
    node = facts.get(ThisNode)
    is_own = node is not None and any(gateway_ip(cidr) == ip for cidr in node.pod_cidrs)
    return host if is_own else None


def _bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
