"""Ports of TrafficControls on the bridge, and obstacles to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.node import LocalLink, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import Steering
from antrea.host.link import Link
from antrea.host.ovs_port import INDEX_KEY
from antrea.host.tunnel_neighbour import TunnelNeighbour, next_hop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.host.ovs_port import Port

DEVICE_NAME_MAX = 15
"""Maximum number of bytes of a name (linux/if.h IFNAMSIZ, without its end)."""


def taken(facts: Facts, port: Port) -> bool:
    """Whether the name cannot be that of a TrafficControl's port: it is the Node's, the agent's or a Pod's."""
    config, link = facts.need(AgentConfig), facts.need(Transport)
    existing = facts.get(OvsPort, port.name)
    reserved = {config.host_gateway, config.ovs_bridge, TUNNEL_PORT, link.interface, link.device, "lo"}
    other = existing is not None and existing.type != PORT_TYPE
    return port.name in reserved or other or bool(facts.get(PodInterface, port.name))


def usable(facts: Facts, port: Port | None) -> OvsPort | None:
    """Return the port on the bridge; None while it is missing."""
    existing = facts.get(OvsPort, port.name) if port else None
    return existing if existing is not None and existing.type == PORT_TYPE else None


def control_ports(facts: Facts, row: Steering) -> Iterator[Port | Link | TunnelNeighbour]:
    """Target and return port; those of several TrafficControls that are the same are one."""
    facts.need(OvsPort, facts.need(AgentConfig).host_gateway)  # the ports of the bridge are known
    for port in (row.target, row.returned):
        if port and not unusable_name(facts, port):
            if port.type == "":
                yield from device_port(facts, port)
                continue
            yield port
            if port.type == "internal":
                yield Link(port.name, 0)
            yield from remote_end(facts, port)


def remote_end(facts: Facts, port: Port) -> Iterator[TunnelNeighbour]:
    """OVS in user space sends to the remote end of a tunnel what it has the MAC address for."""
    link, remote = facts.need(Transport), dict(port.options).get("remote_ip")
    if remote and link.device != link.interface and (hop := next_hop(link, remote)):
        yield TunnelNeighbour(link.device, hop)


def device_port(facts: Facts, port: Port) -> Iterator[Port]:
    """Yield the port while the device exists: on the userspace datapath a port outlives its device, and does not see the next
    one of that name.
    """
    if link := facts.get(LocalLink, port.name):
        ids = (*port.external_ids, (INDEX_KEY, str(link.index)))
        yield msgspec.structs.replace(port, external_ids=ids)


CONTROL_PORTS = Unit(Steering, control_ports)


def unusable_name(facts: Facts, port: Port) -> str:
    """Return why no port can have this name; empty if one can."""
    if not 0 < len(port.name.encode()) <= DEVICE_NAME_MAX:
        return f"a name has 1 to {DEVICE_NAME_MAX} bytes"
    return "the name is that of the Node's network card or of another port" if taken(facts, port) else ""


def obstacle(facts: Facts, row: Steering, port: Port) -> str:
    """Return what keeps a port from the bridge; empty if it is there, or about to be."""
    if usable(facts, port) is not None:
        return ""
    if why := unusable_name(facts, port):
        return why
    if port.type == "" and facts.get(LocalLink, port.name) is None:
        listed = facts.get(LocalLink, facts.need(Transport).device) is not None
        return "there is no such device" if listed else ""
    return facts.refusal(CONTROL_PORTS, row.key)
