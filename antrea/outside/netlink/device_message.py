"""Messages of rtnetlink on devices that only have addresses, and on neighbours that a device answers for.

Source: rtnetlink(7), linux/if_link.h, linux/neighbour.h
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import TYPE_CHECKING

from antrea.host.route import PROTOCOL, ProxyNeighbour
from antrea.outside.netlink import message as wire
from antrea.outside.netlink.host_message import (
    DEL_NEIGHBOUR,
    GET_NEIGHBOUR,
    NDA_DST,
    NDA_PROTOCOL,
    NEIGHBOUR,
    NEW_NEIGHBOUR,
    OURS,
    protocol_number,
)
from antrea.outside.netlink.message import Request, attribute, attributes, number, string

if TYPE_CHECKING:
    from antrea.outside.netlink.message import Reply

_INFO_KIND, _INFO_DATA, _VLAN_ID = 1, 2, 1
_NTF_PROXY = 0x08


def new_dummy(name: str) -> Request:
    """Refused with EEXIST if any device has the name."""
    info = attribute(wire.IFLA_LINKINFO, string(_INFO_KIND, "dummy"))
    return Request(wire.NEW_LINK, wire.NEW, wire.link_head() + string(wire.IFLA_IFNAME, name) + info)


def new_vlan(name: str, card: int, vlan: int, mac: str) -> Request:
    """On the card of this index. Refused with EEXIST if any device has the name."""
    data = attribute(_VLAN_ID, vlan.to_bytes(2, sys.byteorder))
    info = string(_INFO_KIND, "vlan") + attribute(_INFO_DATA, data)
    body = string(wire.IFLA_IFNAME, name) + number(wire.IFLA_LINK, card) + wire.mac(wire.IFLA_ADDRESS, mac)
    return Request(wire.NEW_LINK, wire.NEW, wire.link_head() + body + attribute(wire.IFLA_LINKINFO, info))


def delete_device(name: str) -> Request:
    """Request to delete a device."""
    return Request(wire.DEL_LINK, wire.ASK, wire.link_head() + string(wire.IFLA_IFNAME, name))


def put_proxy(index: int, proxy: ProxyNeighbour) -> Request:
    """Request to answer for an address on the device `index`."""
    return Request(NEW_NEIGHBOUR, wire.PUT, _proxy(index, proxy))


def drop_proxy(index: int, proxy: ProxyNeighbour) -> Request:
    """Request to answer for an address no longer."""
    return Request(DEL_NEIGHBOUR, wire.ASK, _proxy(index, proxy))


def get_proxies() -> Request:
    """Request for all addresses that devices answer for."""
    return Request(GET_NEIGHBOUR, wire.ASK_ALL, NEIGHBOUR.pack(0, 0, 0, _NTF_PROXY, 0))


def proxy_of(reply: Reply) -> ProxyNeighbour | None:
    """Parse a reply to `get_proxies`, if it is ours. Raises OSError if its interface has gone."""
    fields = attributes(reply.body[NEIGHBOUR.size :])
    protocol = fields.get(NDA_PROTOCOL, b"\0")[0]
    if protocol not in OURS:
        return None
    return ProxyNeighbour(
        dev=socket.if_indextoname(NEIGHBOUR.unpack_from(reply.body)[1]),
        ip=str(ipaddress.ip_address(fields[NDA_DST])),
        category=protocol - PROTOCOL,
    )


def _proxy(index: int, proxy: ProxyNeighbour) -> bytes:
    head = NEIGHBOUR.pack(socket.AF_INET6, index, 0, _NTF_PROXY, 0)
    protocol = attribute(NDA_PROTOCOL, bytes([protocol_number(proxy.category)]))
    return head + attribute(NDA_DST, ipaddress.IPv6Address(proxy.ip).packed) + protocol
