"""Messages of rtnetlink on a Pod's interface: the pair of links, its addresses and its default routes. Source: linux/veth.h."""

from __future__ import annotations

import ipaddress
import socket
from typing import TypeAlias

import msgspec

from antrea.outside.netlink import message as wire
from antrea.outside.netlink.message import IFF_UP, Reply, Request, attribute, attributes, number, read, string

Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface

MAIN_TABLE = 254

_IFF_NOARP = 0x80
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_PROTO_BOOT = 3  # what `ip route` shows without a word, as upstream's library writes it


class StandingLink(msgspec.Struct, frozen=True):
    """Interface of a Pod, as the kernel has it."""

    index: int
    flags: int
    peer: int
    """Index of the other end, wherever that is; 0 if there is none."""
    mac: str


class StandingRoute(msgspec.Struct, frozen=True):
    """Default route of a Pod, as the kernel has it."""

    index: int
    """of the interface"""
    table: int
    ip: Ip


def new_veth(name: str, peer: str, *, mtu: int, peer_mac: str, netns: int) -> Request:
    """A pair whose one end is here, up without ARP, and whose other one is born in the namespace `netns` (a descriptor)."""
    there = (
        string(wire.IFLA_IFNAME, peer)
        + number(wire.IFLA_MTU, mtu)
        + wire.mac(wire.IFLA_ADDRESS, peer_mac)
        + number(wire.IFLA_NET_NS_FD, netns)
    )
    data = attribute(_VETH_PEER, wire.link_head() + there)
    info = string(_INFO_KIND, "veth") + attribute(_INFO_DATA, data)
    flags = IFF_UP | _IFF_NOARP
    body = wire.link_head(flags=flags) + string(wire.IFLA_IFNAME, name) + number(wire.IFLA_MTU, mtu)
    return Request(wire.NEW_LINK, wire.NEW, body + attribute(wire.IFLA_LINKINFO, info))


def set_up(index: int) -> Request:
    """Request to set a link up."""
    return Request(wire.NEW_LINK, wire.ASK, wire.link_head(index, IFF_UP))


def delete_link(name: str) -> Request:
    """Request to delete a link, which deletes its peer."""
    return Request(wire.DEL_LINK, wire.ASK, wire.link_head() + string(wire.IFLA_IFNAME, name))


def new_address(index: int, address: Interface) -> Request:
    """An IPv6 address is usable at once: no duplicate address detection."""
    body = wire.own_address(address)
    if address.version == 6:
        body += number(wire.IFA_FLAGS, wire.IFA_F_NODAD)
    header = wire.ADDRESS.pack(_family(address), address.network.prefixlen, 0, 0, index)
    return Request(wire.NEW_ADDRESS, wire.NEW, header + body)


def new_default_route(index: int, gateway: Ip) -> Request:
    """Build a request for a default route by a gateway on the link, whatever addresses that has."""
    header = wire.ROUTE.pack(_family(gateway), 0, 0, 0, MAIN_TABLE, _PROTO_BOOT, 0, wire.UNICAST, wire.ONLINK)
    body = attribute(wire.RTA_GATEWAY, gateway.packed) + number(wire.RTA_OIF, index)
    return Request(wire.NEW_ROUTE, wire.NEW, header + body)


def get_routes() -> Request:
    """All of the namespace."""
    return Request(wire.GET_ROUTE, wire.ASK_ALL, wire.ROUTE.pack(0, 0, 0, 0, 0, 0, 0, 0, 0))


def link_of(reply: Reply) -> StandingLink:
    """Parse a reply to `get_link`."""
    _, _, index, flags, _ = wire.LINK.unpack_from(reply.body)
    fields = attributes(reply.body[wire.LINK.size :])
    return StandingLink(index, flags, read(fields, wire.IFLA_LINK), wire.read_mac(fields, wire.IFLA_ADDRESS))


def address_of(reply: Reply) -> tuple[int, Interface]:
    """(index of the interface, address): what `get_addresses` brings."""
    _, prefix, _, _, index = wire.ADDRESS.unpack_from(reply.body)
    fields = attributes(reply.body[wire.ADDRESS.size :])
    ip = ipaddress.ip_address(fields.get(wire.IFA_LOCAL) or fields[wire.IFA_ADDRESS])
    return index, ipaddress.ip_interface(f"{ip}/{prefix}")


def gateway_of(reply: Reply) -> StandingRoute | None:
    """Parse a reply to `get_routes`, if it is a default route by one gateway."""
    prefix = wire.ROUTE.unpack_from(reply.body)[1]
    fields = attributes(reply.body[wire.ROUTE.size :])
    if prefix or not {wire.RTA_GATEWAY, wire.RTA_OIF, wire.RTA_TABLE} <= fields.keys():
        return None
    return StandingRoute(
        read(fields, wire.RTA_OIF),
        read(fields, wire.RTA_TABLE),
        ipaddress.ip_address(fields[wire.RTA_GATEWAY]),
    )


def _family(address: Ip) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6
