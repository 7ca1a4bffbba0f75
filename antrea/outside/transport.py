"""Which network card reaches other Nodes, and what it has."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Any

import msgspec
from pyroute2 import IPRoute

from antrea.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PROTO_KERNEL = 2
_SCOPE_GLOBAL = 0


class Card(msgspec.Struct, frozen=True):
    """A network card as the kernel shows it."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    """Global ones with prefix length, IPv4 first."""
    routes: tuple[tuple[str, str], ...]
    """Destination and next hop of routes that somebody configured; "" is the default destination."""


async def cards() -> tuple[Card, ...]:
    """All cards of this network namespace."""
    return await asyncio.to_thread(_cards)


async def flush_addresses(name: str) -> None:
    """Take all global addresses off a card; its link-local ones stay."""
    await asyncio.to_thread(_flush, name)


def choose(found: Sequence[Card], *, interface: str, cidrs: Sequence[str], node_ips: Iterable[str]) -> Card:
    """The card that transportInterface names, else one with an address in transportInterfaceCIDRs, else that of the Node IP.

    Raises Invalid naming the key, or Unavailable if no card has the Node's address.
    """
    if interface:
        for card in found:
            if card.name == interface:
                return card
        names = ", ".join(sorted(card.name for card in found if card.name != "lo"))
        raise Invalid("transportInterface", f"this Node has no interface {interface!r}, only {names}")
    if cidrs:
        networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
        for card in found:
            if any(ipaddress.ip_interface(a).ip in net for a in card.addresses for net in networks):
                return card
        raise Invalid(
            "transportInterfaceCIDRs", f"no interface of this Node has an address in {', '.join(cidrs)}"
        )
    wanted = set(node_ips)
    for card in found:
        if wanted.intersection(address.split("/")[0] for address in card.addresses):
            return card
    raise Unavailable(f"an interface with the Node's address {', '.join(sorted(wanted))}")


def _cards() -> tuple[Card, ...]:
    with IPRoute() as ip:
        routes = [route for family in (2, 10) for route in ip.get_routes(family=family, table=254)]
        addresses = list(ip.get_addr())
        return tuple(
            Card(
                name=link.get_attr("IFLA_IFNAME"),
                mac=link.get_attr("IFLA_ADDRESS") or "",
                mtu=link.get_attr("IFLA_MTU"),
                addresses=_addresses(addresses, link["index"]),
                routes=_routes(routes, link["index"]),
            )
            for link in ip.get_links()
        )


def _addresses(rows: Iterable[Any], index: int) -> tuple[str, ...]:
    mine = [row for row in rows if row["index"] == index and row["scope"] == _SCOPE_GLOBAL]
    mine.sort(key=lambda row: int(row["family"]))
    return tuple(
        f"{row.get_attr('IFA_LOCAL') or row.get_attr('IFA_ADDRESS')}/{row['prefixlen']}" for row in mine
    )


def _routes(rows: Iterable[Any], index: int) -> tuple[tuple[str, str], ...]:
    found = []
    for row in rows:
        via = row.get_attr("RTA_GATEWAY")
        if row.get_attr("RTA_OIF") == index and via and row["proto"] != _PROTO_KERNEL:
            dst = row.get_attr("RTA_DST")
            found.append((f"{dst}/{row['dst_len']}" if dst else "", via))
    return tuple(found)


def _flush(name: str) -> None:
    with IPRoute() as ip:
        for index in ip.link_lookup(ifname=name):
            for row in list(ip.get_addr(index=index)):
                if row["scope"] == _SCOPE_GLOBAL:
                    address = row.get_attr("IFA_LOCAL") or row.get_attr("IFA_ADDRESS")
                    ip.addr("del", index=index, address=address, prefixlen=row["prefixlen"])
