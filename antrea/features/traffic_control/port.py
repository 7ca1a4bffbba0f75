"""Ports that TrafficControls name, as they stand on the bridge.

parity: pkg/agent/controller/trafficcontrol/controller.go getPortName, getOrCreateTrafficControlPort
"""

from __future__ import annotations

import hashlib
import ipaddress
import struct
from typing import TYPE_CHECKING, Final

from antrea.host.ovs_port import TYPE_KEY, Port
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from antrea.apis.crd.traffic_control import ErspanTunnel, GreTunnel, TrafficControlPort, UdpTunnel

PORT_TYPE: Final = "traffic-control"
"""antrea-type of these ports."""
VXLAN_PORT, GENEVE_PORT = 4789, 6081
"""UDP ports without destinationPort (RFC 7348, RFC 8926)."""


def switch_port(port: TrafficControlPort) -> Port | None:
    """The port of the bridge; the same for two TrafficControls with the same target. None if it names none."""
    if port.ovs_internal is not None:
        return _port(port.ovs_internal.name, "internal")
    if port.device is not None:
        return _port(port.device.name, "")
    if port.vxlan is not None:
        return _udp("vxlan", port.vxlan, VXLAN_PORT)
    if port.geneve is not None:
        return _udp("geneve", port.geneve, GENEVE_PORT)
    if port.gre is not None:
        return _gre(port.gre)
    return _erspan(port.erspan) if port.erspan is not None else None


def _port(name: str, kind: str, **options: str) -> Port:
    return Port(
        name=name,
        type=kind,
        options=tuple(options.items()),
        external_ids=((TYPE_KEY, PORT_TYPE),),
        no_flood=True,
        category=int(Category.POD_CONNECTIVITY),
    )


def _udp(kind: str, tunnel: UdpTunnel, default: int) -> Port:
    number = tunnel.destination_port or default
    name = _name(kind, tunnel.remote_ip, number, tunnel.vni)
    options = {"remote_ip": tunnel.remote_ip, "dst_port": str(number)}
    return _port(name, kind, **options, **({"key": str(tunnel.vni)} if tunnel.vni else {}))


def _gre(tunnel: GreTunnel) -> Port:
    key = {} if tunnel.key is None else {"key": str(tunnel.key)}
    return _port(_name("gre", tunnel.remote_ip, tunnel.key or 0), "gre", remote_ip=tunnel.remote_ip, **key)


def _erspan(tunnel: ErspanTunnel) -> Port:
    identifiers = (tunnel.session_id, tunnel.version, tunnel.index, tunnel.dir, tunnel.hardware_id)
    options = {"remote_ip": tunnel.remote_ip, "erspan_ver": str(tunnel.version)}
    if tunnel.session_id is not None:
        options["key"] = str(tunnel.session_id)
    if tunnel.version == 1 and tunnel.index is not None:
        options["erspan_idx"] = f"{tunnel.index:x}"
    if tunnel.version != 1 and tunnel.dir is not None:
        options["erspan_dir"] = str(tunnel.dir)
    if tunnel.version != 1 and tunnel.hardware_id is not None:
        options["erspan_hwid"] = str(tunnel.hardware_id)
    return _port(
        _name("erspan", tunnel.remote_ip, *(number or 0 for number in identifiers)), "erspan", **options
    )


def _name(kind: str, remote: str, *numbers: int) -> str:
    """Name a port as upstream does, so that an upgrade keeps it: a digest of the address, as 16 bytes, and the numbers."""
    ip = ipaddress.ip_address(remote)
    data = ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed
    content = data + b"".join(struct.pack(">I", number & 0xFFFFFFFF) for number in numbers)
    return f"{kind}-{hashlib.sha1(content, usedforsecurity=False).hexdigest()[:6]}"
