"""How each host entry is put, dropped and found in the kernel, in the network namespace of the calling thread.

A put replaces what stands under the same key; a drop of a route or a rule matches only one that carries our protocol
number (the kernel does not offer that for the others). All raise NetlinkError or OSError with the kernel's number.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from pyroute2.netlink.exceptions import NetlinkError

from antrea.host.address import Address
from antrea.host.link import Link
from antrea.host.route import CATEGORIES, PROTOCOL, Neighbour, Route, Rule
from antrea.host.sysctl import Sysctl

_IFF_UP = 0x1
_IFA_F_NODAD = 0x02
_RTNH_F_ONLINK = 0x04
_SCOPE_GLOBAL, _SCOPE_LINK, _SCOPE_ANY = 0, 253, 255
_IPV6_METRIC = 1024
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_OURS = range(PROTOCOL, PROTOCOL + CATEGORIES)
_GONE = {errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL}


class Kind(msgspec.Struct, frozen=True):
    """What can be done with one class of entries; `standing` lists ours, whichever category."""

    put: Callable[[Any, Any], None]
    drop: Callable[[Any, Any], None]
    standing: Callable[[Any], Iterator[Any]]


def put_link(ip: Any, link: Link) -> None:
    now = next(iter(ip.link("get", ifname=link.name)))
    changes: dict[str, Any] = {}
    if link.mtu and now.get_attr("IFLA_MTU") != link.mtu:
        changes["mtu"] = link.mtu
    if link.mac and now.get_attr("IFLA_ADDRESS") != link.mac.lower():
        changes["address"] = link.mac
    if bool(now["flags"] & _IFF_UP) != link.up:
        changes["state"] = "up" if link.up else "down"
    if changes:
        ip.link("set", index=now["index"], **changes)


def put_sysctl(_: Any, sysctl: Sysctl) -> None:
    path = Path("/proc/sys") / sysctl.path
    if path.read_text("ascii").strip() != sysctl.value:
        path.write_text(sysctl.value, "ascii")


def stays(_: Any, _entry: Any) -> None:
    """Dropping a link or a sysctl means that we no longer mind."""


def nothing(_: Any) -> Iterator[Any]:
    return iter(())


def put_address(ip: Any, address: Address) -> None:
    """An IPv6 address is usable at once: nobody else can have it, so nobody is asked."""
    flags = {"flags": _IFA_F_NODAD} if ":" in address.cidr else {}
    ip.addr("replace", **_address(address), **flags)


def drop_address(ip: Any, address: Address) -> None:
    ip.addr("del", **_address(address))


def addresses(ip: Any) -> Iterator[Address]:
    for row in ip.addr("dump"):
        if (protocol := row.get_attr("IFA_PROTO")) in _OURS:
            ip_address = row.get_attr("IFA_LOCAL") or row.get_attr("IFA_ADDRESS")
            with _gone_is_fine():
                dev = socket.if_indextoname(row["index"])
                yield Address(dev, f"{ip_address}/{row['prefixlen']}", protocol - PROTOCOL)


def put_route(ip: Any, route: Route) -> None:
    optional: dict[str, Any] = {}
    if route.via:
        optional["gateway"] = route.via
    if route.onlink:
        optional["flags"] = _RTNH_F_ONLINK
    if route.src:
        optional["prefsrc"] = route.src
    if ":" not in route.dst:
        optional["scope"] = _SCOPE_LINK if route.scope == "link" else _SCOPE_GLOBAL
    if route.dev:
        optional["oif"] = _index(route.dev)
    ip.route("replace", **_route(route), **optional)


def drop_route(ip: Any, route: Route) -> None:
    scope = {} if ":" in route.dst else {"scope": _SCOPE_ANY}
    ip.route("del", **_route(route), **scope)


def routes(ip: Any) -> Iterator[Route]:
    for family in _FAMILIES:
        for protocol in _OURS:
            for row in ip.route("dump", family=family, proto=protocol):
                with _gone_is_fine():
                    yield _route_of(row)


def put_neighbour(ip: Any, neighbour: Neighbour) -> None:
    ip.neigh("replace", state="permanent", lladdr=neighbour.mac, **_neighbour(neighbour))


def drop_neighbour(ip: Any, neighbour: Neighbour) -> None:
    ip.neigh("del", **_neighbour(neighbour))


def neighbours(ip: Any) -> Iterator[Neighbour]:
    for family in _FAMILIES:
        for row in ip.neigh("dump", family=family):
            if (protocol := row.get_attr("NDA_PROTOCOL")) in _OURS:
                with _gone_is_fine():
                    yield Neighbour(
                        dev=socket.if_indextoname(row["ifindex"]),
                        ip=row.get_attr("NDA_DST"),
                        mac=row.get_attr("NDA_LLADDR"),
                        category=protocol - PROTOCOL,
                    )


def put_rule(ip: Any, rule: Rule) -> None:
    """The kernel keeps rules of the same key side by side, so the others of that key go after the new one stands."""
    try:
        ip.rule("add", **_rule(rule), table=rule.table)
    except NetlinkError as e:
        if e.code != errno.EEXIST:
            raise
    for other in [other for other in rules(ip) if other.key == rule.key and other.table != rule.table]:
        drop_rule(ip, other)


def drop_rule(ip: Any, rule: Rule) -> None:
    ip.rule("del", **_rule(rule), table=rule.table)


def rules(ip: Any) -> Iterator[Rule]:
    for family in _FAMILIES:
        for row in ip.rule("dump", family=family):
            if (protocol := row.get_attr("FRA_PROTOCOL")) in _OURS:
                yield Rule(
                    family=4 if family == socket.AF_INET else 6,
                    mark=row.get_attr("FRA_FWMARK") or 0,
                    mask=row.get_attr("FRA_FWMASK") or 0,
                    table=row.get_attr("FRA_TABLE"),
                    priority=row.get_attr("FRA_PRIORITY") or 0,
                    category=protocol - PROTOCOL,
                )


KINDS: Final[Mapping[type, Kind]] = {
    Link: Kind(put_link, stays, nothing),
    Sysctl: Kind(put_sysctl, stays, nothing),
    Address: Kind(put_address, drop_address, addresses),
    Neighbour: Kind(put_neighbour, drop_neighbour, neighbours),
    Route: Kind(put_route, drop_route, routes),
    Rule: Kind(put_rule, drop_rule, rules),
}
"""In the order in which they can be put: a route needs its address, an address its link."""


def name(entry: Any) -> tuple[type, Any]:
    """Class and key, addresses written as the kernel's are: "FD00:0::1/64" and "fd00::1/64" are one."""
    key = entry.key
    return type(entry), tuple(map(_canonical, key)) if isinstance(key, tuple) else key


def words(error: OSError | NetlinkError) -> str:
    """The kernel's own: "Network is unreachable"."""
    if isinstance(error, NetlinkError):
        return os.strerror(error.code)
    return error.strerror or str(error)


def is_gone(error: OSError | NetlinkError) -> bool:
    """Whether a drop found nothing to drop: no such interface, address, route, neighbour or rule."""
    code = error.code if isinstance(error, NetlinkError) else error.errno
    return code in _GONE


def _protocol(category: int) -> int:
    if category >= CATEGORIES:
        raise ValueError(f"category {category} has no protocol number; {CATEGORIES - 1} is the highest")
    return PROTOCOL + category


def _index(dev: str) -> int:
    try:
        return socket.if_nametoindex(dev)
    except OSError as e:  # it comes without a number
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from e


def _family(text: str) -> int:
    return socket.AF_INET6 if ":" in text else socket.AF_INET


def _address(address: Address) -> dict[str, Any]:
    ip, _, prefix = address.cidr.partition("/")
    return {
        "index": _index(address.dev),
        "family": _family(ip),
        "address": ip,
        "prefixlen": int(prefix),
        "proto": _protocol(address.category),
    }


def _route(route: Route) -> dict[str, Any]:
    metric = {"priority": route.metric} if route.metric else {}
    return {
        "family": _family(route.dst),
        "dst": route.dst,
        "table": route.table,
        "proto": _protocol(route.category),
        **metric,
    }


def _route_of(row: Any) -> Route:
    ipv6 = row["family"] == socket.AF_INET6
    metric = row.get_attr("RTA_PRIORITY") or 0
    oif = row.get_attr("RTA_OIF")
    everywhere = "::" if ipv6 else "0.0.0.0"  # noqa: S104 (a destination, nothing is bound)
    return Route(
        dst=f"{row.get_attr('RTA_DST') or everywhere}/{row['dst_len']}",
        dev=socket.if_indextoname(oif) if oif else "",
        via=row.get_attr("RTA_GATEWAY") or "",
        onlink=bool(row["flags"] & _RTNH_F_ONLINK),
        scope="link" if row["scope"] == _SCOPE_LINK else "global",
        src=row.get_attr("RTA_PREFSRC") or "",
        table=row.get_attr("RTA_TABLE"),
        metric=0 if ipv6 and metric == _IPV6_METRIC else metric,
        category=row["proto"] - PROTOCOL,
    )


def _neighbour(neighbour: Neighbour) -> dict[str, Any]:
    return {
        "family": _family(neighbour.ip),
        "ifindex": _index(neighbour.dev),
        "dst": str(ipaddress.ip_address(neighbour.ip)),
        "protocol": _protocol(neighbour.category),
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "family": socket.AF_INET if rule.family == 4 else socket.AF_INET6,
        "priority": rule.priority,
        "fwmark": rule.mark,
        "fwmask": rule.mask,
        "protocol": _protocol(rule.category),
    }


@functools.lru_cache(maxsize=4096)
def _canonical(part: Any) -> Any:
    if isinstance(part, str) and ":" in part:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_interface(part)) if "/" in part else str(ipaddress.ip_address(part))
    return part


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    """An interface may go between a dump and the look-up of its name; what it had went with it."""
    try:
        yield
    except OSError as e:
        if e.errno not in {errno.ENXIO, errno.ENODEV}:
            raise
