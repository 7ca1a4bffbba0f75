"""Settings of an interface: MAC, MTU, addresses and routes; read from one, and given to another that takes its name.

Addresses and routes are kept as the kernel's own messages, so that metrics, lifetimes and tables stay as they are.
Source: rtnetlink(7), linux/if_addr.h, linux/rtnetlink.h.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Refused
from antrea.outside.netlink import message as wire
from antrea.outside.netlink.host_message import address_of, device_of, get_devices, get_routes, set_device
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.outside.netlink.host_message import Device
    from antrea.outside.netlink.message import Reply

MAX_NAME = 15
"""Bytes of an interface's name: IFNAMSIZ less its end."""
_IFA_LABEL = 3
_RTA_CACHEINFO = 12
_IFA_F_NOPREFIXROUTE, _IFA_F_MANAGETEMPADDR = 0x200, 0x100
_KEPT_FLAGS = _IFA_F_NOPREFIXROUTE | _IFA_F_MANAGETEMPADDR
_SCOPE_LINK, _PROTO_KERNEL, _TABLE_LOCAL, _CLONED = 253, 2, 255, 0x200


class InterfaceSettings(msgspec.Struct, frozen=True):
    """Settings of one interface; addresses and routes are messages of the kernel without the interface's number."""

    mac: str
    mtu: int
    addresses: tuple[bytes, ...] = ()
    """All but link-local ones of IPv6, which the kernel makes from the MAC."""
    routes: tuple[bytes, ...] = ()
    """All that the kernel did not make by itself; those without a router first."""


def device(name: str) -> Device | None:
    """None: there is no such interface."""
    with Rtnl() as kernel:
        return _device(kernel, name)


def held_addresses(mark: str = "") -> dict[str, set[str]]:
    """Addresses of all interfaces by name; of one whose name ends with `mark`, by the name before it."""
    with Rtnl() as kernel:
        names = {
            device.index: device.name.removesuffix(mark)
            for device in map(device_of, kernel.ask(get_devices()))
        }
        rows = [address_of(reply) for reply in kernel.ask(wire.get_addresses())]
    held: dict[str, set[str]] = {name: set() for name in names.values()}
    for row in rows:
        if row.index in names:
            held[names[row.index]].add(str(ipaddress.ip_interface(row.cidr).ip))
    return held


def read_settings(name: str) -> InterfaceSettings | None:
    """None: there is no such interface."""
    with Rtnl() as kernel:
        device = _device(kernel, name)
        if device is None:
            return None
        addresses = tuple(_addresses(kernel, device.index))
        routes = [body for request in get_routes() for body in _routes(kernel.ask(request), device.index)]
    routes.sort(key=lambda body: wire.RTA_GATEWAY in wire.attributes(body[wire.ROUTE.size :]))
    return InterfaceSettings(device.mac, device.mtu, addresses, tuple(routes))


def give_settings(name: str, settings: InterfaceSettings) -> None:
    """Bring the interface up with them. Raises Refused with the kernel's words."""
    _enable_ipv6(name, enabled=True)
    with Rtnl() as kernel:
        device = _device(kernel, name)
        if device is None:
            raise Refused([name], f"interface {name} does not exist")
        try:
            kernel.ask(set_device(device.index, up=True, mtu=settings.mtu))
            for body in settings.addresses:
                kernel.ask(wire.Request(wire.NEW_ADDRESS, wire.PUT, _address_on(body, device.index)))
            for body in settings.routes:
                _put_route(kernel, body + wire.number(wire.RTA_OIF, device.index))
        except OSError as error:
            raise Refused(
                [name], f"addresses and routes of {name} cannot be set: {error.strerror}"
            ) from error


def clear_settings(name: str) -> None:
    """Take all addresses, and with them all routes, off an interface, and bring it up. Raises Refused."""
    _enable_ipv6(name, enabled=False)
    with Rtnl() as kernel:
        device = _device(kernel, name)
        if device is None:
            raise Refused([name], f"interface {name} does not exist")
        try:
            for body in _addresses(kernel, device.index):
                _remove(kernel, wire.Request(wire.DEL_ADDRESS, wire.ASK, _address_on(body, device.index)))
            kernel.ask(set_device(device.index, up=True))
        except OSError as error:
            raise Refused([name], f"addresses of {name} cannot be removed: {error.strerror}") from error


def rename(name: str, new: str) -> None:
    """The interface goes down for that, and loses routes and IPv6 addresses. Raises Refused."""
    with Rtnl() as kernel:
        device = _device(kernel, name)
        if device is None:
            raise Refused([name], f"interface {name} does not exist")
        try:
            kernel.ask(set_device(device.index, up=False))
            head = wire.link_head(device.index, 0, 0)
            kernel.ask(wire.Request(wire.NEW_LINK, wire.ASK, head + wire.string(wire.IFLA_IFNAME, new)))
        except OSError as error:
            raise Refused([name], f"cannot rename {name} to {new}: {error.strerror}") from error


def _device(kernel: Rtnl, name: str) -> Device | None:
    try:
        return device_of(kernel.ask(wire.get_link(name))[0])
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise


def _remove(kernel: Rtnl, request: wire.Request) -> None:
    """An address goes with the one that it is secondary to."""
    try:
        kernel.ask(request)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise


def _addresses(kernel: Rtnl, index: int) -> Iterator[bytes]:
    for reply in kernel.ask(wire.get_addresses()):
        family, prefix, _, scope, owner_index = wire.ADDRESS.unpack_from(reply.body)
        if owner_index != index or (family == socket.AF_INET6 and scope == _SCOPE_LINK):
            continue
        fields = wire.attributes(reply.body[wire.ADDRESS.size :])
        flags = wire.read(fields, wire.IFA_FLAGS) & _KEPT_FLAGS
        if family == socket.AF_INET6:
            flags |= wire.IFA_F_NODAD
        dropped = (_IFA_LABEL, wire.IFA_FLAGS)
        kept = b"".join(wire.attribute(kind, value) for kind, value in fields.items() if kind not in dropped)
        head = wire.ADDRESS.pack(family, prefix, 0, scope, 0)
        yield head + kept + wire.number(wire.IFA_FLAGS, flags)


def _address_on(body: bytes, index: int) -> bytes:
    family, prefix, flags, scope, _ = wire.ADDRESS.unpack_from(body)
    return wire.ADDRESS.pack(family, prefix, flags, scope, index) + body[wire.ADDRESS.size :]


def _routes(replies: list[Reply], index: int) -> Iterator[bytes]:
    """Yield the routes with this one next hop."""
    for reply in replies:
        fields = wire.ROUTE.unpack_from(reply.body)
        family, prefix, source, tos, table, protocol, scope, kind, flags = fields
        route_fields = wire.attributes(reply.body[wire.ROUTE.size :])
        made_by_kernel = protocol == _PROTO_KERNEL or table == _TABLE_LOCAL or flags & _CLONED
        if made_by_kernel or wire.read(route_fields, wire.RTA_OIF) != index:
            continue
        head = wire.ROUTE.pack(family, prefix, source, tos, table, protocol, scope, kind, flags & wire.ONLINK)
        dropped = (wire.RTA_OIF, _RTA_CACHEINFO)
        yield head + b"".join(
            wire.attribute(kind, value) for kind, value in route_fields.items() if kind not in dropped
        )


def _put_route(kernel: Rtnl, body: bytes) -> None:
    """A route of IPv6 outlives the address by which its router was a neighbour: it is a neighbour without one then."""
    try:
        kernel.ask(wire.Request(wire.NEW_ROUTE, wire.PUT, body))
    except OSError as error:
        if error.errno not in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            raise
        *fields, flags = wire.ROUTE.unpack_from(body)
        head = wire.ROUTE.pack(*fields, flags | wire.ONLINK)
        kernel.ask(wire.Request(wire.NEW_ROUTE, wire.PUT, head + body[wire.ROUTE.size :]))


def _enable_ipv6(name: str, *, enabled: bool) -> None:
    """Whether the kernel makes addresses of the interface by itself; nothing to do in one without IPv6."""
    path = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
    if path.exists():
        path.write_text("0" if enabled else "1", "ascii")
