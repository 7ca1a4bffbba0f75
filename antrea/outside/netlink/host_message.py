"""Messages of rtnetlink for what a Node has: devices, addresses, routes, rules and neighbours; made, and read back.

Source: rtnetlink(7), linux/fib_rules.h, linux/neighbour.h.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from typing import TYPE_CHECKING

import msgspec

from antrea.host.route import CATEGORIES, PROTOCOL, Neighbour, Route, RoutingRule
from antrea.outside.netlink import message as wire
from antrea.outside.netlink.message import IFF_UP, Request, attribute, attributes, number, read, read_mac

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.host.address import Address
    from antrea.outside.netlink.message import Reply

NEW_NEIGHBOUR, DEL_NEIGHBOUR, GET_NEIGHBOUR = 28, 29, 30
_NEW_RULE, _DEL_RULE, _GET_RULE = 32, 33, 34
_FRA_PRIORITY, _FRA_FWMARK, _FRA_TABLE, _FRA_FWMASK, _FRA_PROTOCOL = 6, 10, 15, 16, 21
NDA_DST, _NDA_LLADDR, NDA_PROTOCOL = 1, 2, 12
_RULE = struct.Struct("=BBBBBBBBI")  # struct fib_rule_hdr
NEIGHBOUR = struct.Struct("=BxxxiHBB")  # struct ndmsg

_NTF_USE, _NUD_PERMANENT = 0x01, 0x80
_TO_TABLE = 1
_SCOPE_GLOBAL, _SCOPE_LINK, _SCOPE_ANY = 0, 253, 255
_IPV6_METRIC = 1024
_FAMILIES = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 (destinations, nothing is bound)
OURS = range(PROTOCOL, PROTOCOL + CATEGORIES)


class Device(msgspec.Struct, frozen=True):
    """Interface of the host, as the kernel has it."""

    index: int
    name: str
    flags: int
    mtu: int
    mac: str


class DeviceAddress(msgspec.Struct, frozen=True):
    """Address of the host, as the kernel has it. `cidr` as in Address; `protocol` 0 is unset."""

    index: int
    cidr: str
    is_global: bool
    protocol: int
    has_other: bool = False
    """IPv6: duplicate address detection failed, so that the kernel does not use it."""


class KernelRoute(msgspec.Struct, frozen=True):
    """Route of the host by one next hop, as the kernel has it. Empty texts and 0: it has none."""

    dst: str
    index: int
    via: str
    src: str
    table: int
    metric: int
    protocol: int
    scope: int
    flags: int


class KnownNeighbour(msgspec.Struct, frozen=True):
    """A neighbour entry of the kernel; `state` is a set of NUD_ bits, `mac` may be empty."""

    index: int
    ip: str
    mac: str
    state: int


def get_devices() -> Request:
    """Request for all devices."""
    return Request(wire.GET_LINK, wire.ASK_ALL, wire.link_head())


def set_device(index: int, *, up: bool | None = None, mtu: int = 0, mac: str = "") -> Request:
    """Changes only what is given."""
    flags, mask = (IFF_UP if up else 0), (0 if up is None else IFF_UP)
    body = number(wire.IFLA_MTU, mtu) if mtu else b""
    if mac:
        body += wire.mac(wire.IFLA_ADDRESS, mac)
    return Request(wire.NEW_LINK, wire.ASK, wire.link_head(index, flags, mask) + body)


def device_of(reply: Reply) -> Device:
    """Parse a reply to `get_devices` or `rtnl_message.get_link`."""
    _, _, index, flags, _ = wire.LINK.unpack_from(reply.body)
    fields = attributes(reply.body[wire.LINK.size :])
    name = fields[wire.IFLA_IFNAME].rstrip(b"\0").decode(errors="replace")
    return Device(index, name, flags, read(fields, wire.IFLA_MTU), read_mac(fields, wire.IFLA_ADDRESS))


def put_address(index: int, address: Address) -> Request:
    """An IPv6 address is usable at once: no other host can have it, so duplicate address detection is off."""
    flags = number(wire.IFA_FLAGS, wire.IFA_F_NODAD) if ":" in address.cidr else b""
    return Request(wire.NEW_ADDRESS, wire.PUT, _address(index, address) + flags)


def drop_address(index: int, address: Address) -> Request:
    """Request to remove an address from the device `index`."""
    return Request(wire.DEL_ADDRESS, wire.ASK, _address(index, address))


def address_of(reply: Reply) -> DeviceAddress:
    """Parse a reply to `rtnl_message.get_addresses`."""
    _, prefix, flags, scope, index = wire.ADDRESS.unpack_from(reply.body)
    fields = attributes(reply.body[wire.ADDRESS.size :])
    ip = _ip(fields.get(wire.IFA_LOCAL) or fields[wire.IFA_ADDRESS])
    protocol = fields.get(wire.IFA_PROTO, b"\0")[0]
    other = bool(flags & wire.IFA_F_DADFAILED)
    return DeviceAddress(index, f"{ip}/{prefix}", scope == _SCOPE_GLOBAL, protocol, other)


def put_route(index: int, route: Route) -> Request:
    """`index` of its interface, 0 for a route without one."""
    body = number(wire.RTA_OIF, index) if index else b""
    if route.via:
        body += attribute(wire.RTA_GATEWAY, _packed(route.via))
    if route.src:
        body += attribute(wire.RTA_PREFSRC, _packed(route.src))
    scope = _SCOPE_LINK if route.scope == "link" and ":" not in route.dst else _SCOPE_GLOBAL
    return Request(wire.NEW_ROUTE, wire.PUT, _route(route, scope, wire.ONLINK if route.onlink else 0) + body)


def drop_route(route: Route) -> Request:
    """Whatever its next hop; only if it carries our protocol number."""
    scope = _SCOPE_GLOBAL if ":" in route.dst else _SCOPE_ANY
    return Request(wire.DEL_ROUTE, wire.ASK, _route(route, scope, 0))


def get_routes() -> list[Request]:
    """To be asked one after the other; all tables."""
    return [
        Request(wire.GET_ROUTE, wire.ASK_ALL, wire.ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))
        for family in _FAMILIES
    ]


def protocol_of(reply: Reply) -> int:
    """Return the protocol of a route: the program that added it."""
    return reply.body[5]


def route_of(reply: Reply) -> KernelRoute:
    """Parse a reply to `get_routes`."""
    family, prefix, _, _, table, protocol, scope, _, flags = wire.ROUTE.unpack_from(reply.body)
    fields = attributes(reply.body[wire.ROUTE.size :])
    metric = read(fields, wire.RTA_PRIORITY)
    return KernelRoute(
        dst=f"{_ip(fields[wire.RTA_DST]) if wire.RTA_DST in fields else _FAMILIES[family]}/{prefix}",
        index=read(fields, wire.RTA_OIF),
        via=_ip(fields[wire.RTA_GATEWAY]) if wire.RTA_GATEWAY in fields else "",
        src=_ip(fields[wire.RTA_PREFSRC]) if wire.RTA_PREFSRC in fields else "",
        table=read(fields, wire.RTA_TABLE) or table,
        metric=0 if family == socket.AF_INET6 and metric == _IPV6_METRIC else metric,
        protocol=protocol,
        scope=scope,
        flags=flags,
    )


def host_route(route: KernelRoute) -> Route:
    """One of ours as an entry. Raises OSError if its interface has gone."""
    return Route(
        dst=route.dst,
        dev=socket.if_indextoname(route.index) if route.index else "",
        via=route.via,
        onlink=bool(route.flags & wire.ONLINK),
        scope="link" if route.scope == _SCOPE_LINK else "global",
        src=route.src,
        table=route.table,
        metric=route.metric,
        category=route.protocol - PROTOCOL,
    )


def put_neighbour(index: int, neighbour: Neighbour) -> Request:
    """Request to add or replace a neighbour entry of the device `index`."""
    mac = wire.mac(_NDA_LLADDR, neighbour.mac)
    return Request(NEW_NEIGHBOUR, wire.PUT, _neighbour(index, neighbour) + mac)


def drop_neighbour(index: int, neighbour: Neighbour) -> Request:
    """Request to remove a neighbour entry of the device `index`."""
    return Request(DEL_NEIGHBOUR, wire.ASK, _neighbour(index, neighbour))


def get_neighbours() -> Request:
    """Request for all neighbour entries."""
    return Request(GET_NEIGHBOUR, wire.ASK_ALL, NEIGHBOUR.pack(0, 0, 0, 0, 0))


def use_neighbour(index: int, ip: str) -> Request:
    """Use the neighbour as a packet would: the kernel resolves a missing entry, and verifies an old one."""
    return Request(
        NEW_NEIGHBOUR,
        wire.PUT,
        NEIGHBOUR.pack(_family(ip), index, 0, _NTF_USE, 0) + attribute(NDA_DST, _packed(ip)),
    )


def any_neighbour_of(reply: Reply) -> KnownNeighbour | None:
    """An entry in a dump of neighbours, of any origin; None for one without an address."""
    _, index, state, *_ = NEIGHBOUR.unpack_from(reply.body)
    fields = attributes(reply.body[NEIGHBOUR.size :])
    if NDA_DST not in fields:
        return None
    return KnownNeighbour(index, _ip(fields[NDA_DST]), read_mac(fields, _NDA_LLADDR), state)


def neighbour_of(reply: Reply) -> Neighbour | None:
    """Parse a reply to `get_neighbours`, if it is ours. Raises OSError if its interface has gone."""
    fields = attributes(reply.body[NEIGHBOUR.size :])
    protocol = fields.get(NDA_PROTOCOL, b"\0")[0]
    if protocol not in OURS:
        return None
    return Neighbour(
        dev=socket.if_indextoname(NEIGHBOUR.unpack_from(reply.body)[1]),
        ip=_ip(fields[NDA_DST]),
        mac=read_mac(fields, _NDA_LLADDR),
        category=protocol - PROTOCOL,
    )


def put_rule(rule: RoutingRule) -> Request:
    """Refused with EEXIST if it stands."""
    return Request(_NEW_RULE, wire.NEW, _rule(rule))


def drop_rule(rule: RoutingRule) -> Request:
    """Only if it carries our protocol number."""
    return Request(_DEL_RULE, wire.ASK, _rule(rule))


def get_rules() -> Request:
    """Request for all routing rules."""
    return Request(_GET_RULE, wire.ASK_ALL, _RULE.pack(0, 0, 0, 0, 0, 0, 0, 0, 0))


def rule_of(reply: Reply) -> RoutingRule | None:
    """Parse a reply to `get_rules`, if it is ours."""
    family = reply.body[0]
    fields = attributes(reply.body[_RULE.size :])
    protocol = fields.get(_FRA_PROTOCOL, b"\0")[0]
    if protocol not in OURS:
        return None
    return RoutingRule(
        family=4 if family == socket.AF_INET else 6,
        mark=read(fields, _FRA_FWMARK),
        mask=read(fields, _FRA_FWMASK),
        table=read(fields, _FRA_TABLE),
        priority=read(fields, _FRA_PRIORITY),
        category=protocol - PROTOCOL,
    )


def index_of(dev: str) -> int:
    """Raises OSError ENODEV."""
    try:
        return socket.if_nametoindex(dev)
    except OSError as error:  # it comes without a number
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from error


def protocol_number(category: int) -> int:
    """Return the protocol by which our entries are recognized later. Raises ValueError if the category has none."""
    if category >= CATEGORIES:
        raise ValueError(f"category {category} has no protocol number; {CATEGORIES - 1} is the highest")
    return PROTOCOL + category


def _address(index: int, address: Address) -> bytes:
    interface = ipaddress.ip_interface(address.cidr)
    head = wire.ADDRESS.pack(_family(address.cidr), interface.network.prefixlen, 0, _SCOPE_GLOBAL, index)
    return (
        head
        + wire.own_address(interface)
        + attribute(wire.IFA_PROTO, bytes([protocol_number(address.category)]))
    )


def _route(route: Route, scope: int, flags: int) -> bytes:
    to = ipaddress.ip_interface(route.dst)
    prefix, protocol = to.network.prefixlen, protocol_number(route.category)
    body = attribute(wire.RTA_DST, to.packed) if prefix else b""
    if route.metric:
        body += number(wire.RTA_PRIORITY, route.metric)
    head = wire.ROUTE.pack(_family(route.dst), prefix, 0, 0, 0, protocol, scope, wire.UNICAST, flags)
    return head + body + number(wire.RTA_TABLE, route.table)


def _neighbour(index: int, neighbour: Neighbour) -> bytes:
    head = NEIGHBOUR.pack(_family(neighbour.ip), index, _NUD_PERMANENT, 0, 0)
    protocol = attribute(NDA_PROTOCOL, bytes([protocol_number(neighbour.category)]))
    return head + attribute(NDA_DST, _packed(neighbour.ip)) + protocol


def _rule(rule: RoutingRule) -> bytes:
    family = socket.AF_INET if rule.family == 4 else socket.AF_INET6
    numbers: Iterable[tuple[int, int]] = (
        (_FRA_PRIORITY, rule.priority),
        (_FRA_FWMARK, rule.mark),
        (_FRA_FWMASK, rule.mask),
        (_FRA_TABLE, rule.table),
    )
    head = _RULE.pack(family, 0, 0, 0, 0, 0, 0, _TO_TABLE, 0)
    protocol = attribute(_FRA_PROTOCOL, bytes([protocol_number(rule.category)]))
    return head + b"".join(number(kind, value) for kind, value in numbers) + protocol


def _family(text: str) -> int:
    return socket.AF_INET6 if ":" in text else socket.AF_INET


def _packed(ip: str) -> bytes:
    return ipaddress.ip_address(ip).packed


def _ip(data: bytes) -> str:
    return str(ipaddress.ip_address(data))
