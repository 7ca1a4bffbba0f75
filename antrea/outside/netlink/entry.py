"""How each host entry is put, dropped and found in the kernel, in the network namespace of the calling thread.

A put replaces what stands under the same key; a drop of a route or a rule matches only one that carries our protocol
number (the kernel does not offer that for the others). All raise OSError with the kernel's number.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from antrea.host.address import Address
from antrea.host.link import Dummy, Link, Vlan
from antrea.host.route import CATEGORIES, MAIN, PROTOCOL, Neighbour, ProxyNeighbour, Route, RoutingRule
from antrea.host.sysctl import Sysctl
from antrea.outside.netlink import device_message
from antrea.outside.netlink import host_message as message
from antrea.outside.netlink.message import IFF_UP, get_addresses, get_link
from antrea.outside.netlink.pod_veth import turn_off_checksums
from antrea.outside.netlink.socket import Rtnl

_GONE = {errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL}
_OURS = range(PROTOCOL, PROTOCOL + CATEGORIES)


class Kind(msgspec.Struct, frozen=True):
    """Operations on one class of entries; `standing` lists ours, whichever category."""

    put: Callable[[Rtnl, Any], None]
    drop: Callable[[Rtnl, Any], None]
    standing: Callable[[Rtnl], Iterator[Any]]


def put_link(kernel: Rtnl, link: Link) -> None:
    """Set the MTU, MAC address and state of a device where they differ."""
    now = message.device_of(kernel.ask(get_link(link.name))[0])
    mtu = link.mtu if now.mtu != link.mtu else 0
    mac = link.mac if now.mac != link.mac.lower() else ""
    up = link.up if bool(now.flags & IFF_UP) != link.up else None
    if mtu or mac or up is not None:
        kernel.ask(message.set_device(now.index, up=up, mtu=mtu, mac=mac))
    if link.whole_checksums:
        turn_off_checksums(link.name)


def put_dummy(kernel: Rtnl, dummy: Dummy) -> None:
    """Create a dummy device if it does not exist."""
    with contextlib.suppress(FileExistsError):
        kernel.ask(device_message.new_dummy(dummy.name))


def put_vlan(kernel: Rtnl, vlan: Vlan) -> None:
    """Create a VLAN device on its card if it does not exist."""
    with contextlib.suppress(FileExistsError):
        kernel.ask(device_message.new_vlan(vlan.name, message.index_of(vlan.card), vlan.vlan, vlan.mac))


def drop_device(kernel: Rtnl, device: Dummy | Vlan) -> None:
    """Delete a device."""
    kernel.ask(device_message.delete_device(device.name))


def put_sysctl(_: Rtnl, sysctl: Sysctl) -> None:
    """Write a kernel parameter if it has another value."""
    path = Path("/proc/sys") / sysctl.path
    if path.read_text("ascii").strip() != sysctl.value:
        path.write_text(sysctl.value, "ascii")


def stays(_: Rtnl, _entry: Any) -> None:
    """Dropping a link or a sysctl means that we no longer mind."""


def no_entries(_: Rtnl) -> Iterator[Any]:
    """Return no entries, for kinds that the kernel does not mark as the agent's."""
    return iter(())


def put_address(kernel: Rtnl, address: Address) -> None:
    """Assign an address to its device."""
    kernel.ask(message.put_address(message.index_of(address.dev), address))


def drop_address(kernel: Rtnl, address: Address) -> None:
    """Remove an address from its device."""
    kernel.ask(message.drop_address(message.index_of(address.dev), address))


def addresses(kernel: Rtnl) -> Iterator[Address]:
    """Find the addresses that the agent assigned."""
    for device_address in map(message.address_of, kernel.ask(get_addresses())):
        if device_address.protocol in _OURS:
            with _gone_is_fine():
                yield Address(
                    socket.if_indextoname(device_address.index),
                    device_address.cidr,
                    device_address.protocol - PROTOCOL,
                )


def put_route(kernel: Rtnl, route: Route) -> None:
    """Add or replace a route."""
    kernel.ask(message.put_route(message.index_of(route.dev) if route.dev else 0, route))


def drop_route(kernel: Rtnl, route: Route) -> None:
    """Remove a route."""
    kernel.ask(message.drop_route(route))


def routes(kernel: Rtnl) -> Iterator[Route]:
    """Find the routes that the agent added."""
    for family in message.get_routes():
        for reply in kernel.ask(family):
            if message.protocol_of(reply) in _OURS:
                with _gone_is_fine():
                    yield message.host_route(message.route_of(reply))


def routes_by(kernel: Rtnl, dev: str) -> Iterator[Route]:
    """Yield the routes of others to networks of Pods by a device: the next hop is in the network itself.

    Their category is below zero, so that their protocol follows from it.
    """
    for family in message.get_routes() if dev else ():
        for kernel_route in map(message.route_of, kernel.ask(family)):
            if (
                kernel_route.via
                and kernel_route.protocol not in _OURS
                and kernel_route.table == MAIN
                and _leads_to_pods(kernel_route)
            ):
                with _gone_is_fine():
                    route = message.host_route(kernel_route)
                    if route.dev == dev:
                        yield route


def _leads_to_pods(route: message.KernelRoute) -> bool:
    return ipaddress.ip_address(route.via) in ipaddress.ip_network(route.dst)


def put_neighbour(kernel: Rtnl, neighbour: Neighbour) -> None:
    """Add or replace a permanent neighbour entry."""
    kernel.ask(message.put_neighbour(message.index_of(neighbour.dev), neighbour))


def drop_neighbour(kernel: Rtnl, neighbour: Neighbour) -> None:
    """Remove a neighbour entry."""
    kernel.ask(message.drop_neighbour(message.index_of(neighbour.dev), neighbour))


def neighbours(kernel: Rtnl) -> Iterator[Neighbour]:
    """Find the neighbour entries that the agent added."""
    for reply in kernel.ask(message.get_neighbours()):
        with _gone_is_fine():
            if neighbour := message.neighbour_of(reply):
                yield neighbour


def put_proxy(kernel: Rtnl, proxy: ProxyNeighbour) -> None:
    """Make a device answer for an address of another."""
    kernel.ask(device_message.put_proxy(message.index_of(proxy.dev), proxy))


def drop_proxy(kernel: Rtnl, proxy: ProxyNeighbour) -> None:
    """Make a device answer for an address no longer."""
    kernel.ask(device_message.drop_proxy(message.index_of(proxy.dev), proxy))


def proxies(kernel: Rtnl) -> Iterator[ProxyNeighbour]:
    """Find the addresses that devices answer for."""
    for reply in kernel.ask(device_message.get_proxies()):
        with _gone_is_fine():
            if proxy := device_message.proxy_of(reply):
                yield proxy


def put_rule(kernel: Rtnl, rule: RoutingRule) -> None:
    """The kernel keeps rules of the same key side by side, so the others of that key go after the new one stands."""
    with contextlib.suppress(FileExistsError):
        kernel.ask(message.put_rule(rule))
    for other in [other for other in rules(kernel) if other.key == rule.key and other.table != rule.table]:
        drop_rule(kernel, other)


def drop_rule(kernel: Rtnl, rule: RoutingRule) -> None:
    """Remove a routing rule."""
    kernel.ask(message.drop_rule(rule))


def rules(kernel: Rtnl) -> Iterator[RoutingRule]:
    """Find the routing rules that the agent added."""
    return filter(None, map(message.rule_of, kernel.ask(message.get_rules())))


KINDS: Final[Mapping[type, Kind]] = {
    Dummy: Kind(put_dummy, drop_device, no_entries),
    Vlan: Kind(put_vlan, drop_device, no_entries),
    Link: Kind(put_link, stays, no_entries),
    Sysctl: Kind(put_sysctl, stays, no_entries),
    Address: Kind(put_address, drop_address, addresses),
    Neighbour: Kind(put_neighbour, drop_neighbour, neighbours),
    ProxyNeighbour: Kind(put_proxy, drop_proxy, proxies),
    Route: Kind(put_route, drop_route, routes),
    RoutingRule: Kind(put_rule, drop_rule, rules),
}
"""In the order in which they can be put: a route needs its address, an address its link."""


def name(entry: Any) -> tuple[type, Any]:
    """Class and key, addresses written as the kernel's are: "FD00:0::1/64" and "fd00::1/64" are one."""
    key = entry.key
    return type(entry), tuple(map(_canonical, key)) if isinstance(key, tuple) else key


def is_gone(error: OSError) -> bool:
    """Whether a drop found nothing to drop: no such interface, address, route, neighbour or rule."""
    return error.errno in _GONE


def _canonical(part: Any) -> Any:
    return _canonical_text(part) if isinstance(part, str) and ":" in part else part


@functools.lru_cache(maxsize=1024)
def _canonical_text(part: str) -> str:
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_interface(part)) if "/" in part else str(ipaddress.ip_address(part))
    return part


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    """Ignore an interface that disappears between a dump and the query of its name, with all that it had."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENXIO, errno.ENODEV}:
            raise
