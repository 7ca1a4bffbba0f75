"""Which network card reaches other Nodes, and what it has."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Invalid, Unavailable
from antrea.host.address import Address
from antrea.host.route import MAIN
from antrea.outside.netlink import host_message as message
from antrea.outside.netlink.message import get_addresses
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from antrea.outside.netlink.host_message import DeviceAddress

_PROTO_KERNEL = 2


class Card(msgspec.Struct, frozen=True):
    """A network card as the kernel shows it."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    """Global ones with prefix length, IPv4 first."""
    routes: tuple[tuple[str, str], ...]
    """Destination and next hop of routes that an administrator configured; "" is the default destination."""


async def cards() -> tuple[Card, ...]:
    """All cards of this network namespace."""
    return await asyncio.to_thread(_cards)


async def flush_addresses(name: str) -> None:
    """Take all global addresses off a card; its link-local ones stay."""
    await asyncio.to_thread(_flush, name)


def choose(cards: Sequence[Card], *, interface: str, cidrs: Sequence[str], node_ips: Iterable[str]) -> Card:
    """The card that transportInterface names, else one with an address in transportInterfaceCIDRs, else that of the Node IP.

    Raises Invalid naming the key, or Unavailable if no card has the Node's address.
    """
    if interface:
        for card in cards:
            if card.name == interface:
                return card
        names = ", ".join(sorted(card.name for card in cards if card.name != "lo"))
        raise Invalid("transportInterface", f"this Node has no interface {interface!r}, only {names}")
    if cidrs:
        networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
        for card in cards:
            if any(ipaddress.ip_interface(a).ip in net for a in card.addresses for net in networks):
                return card
        raise Invalid(
            "transportInterfaceCIDRs", f"no interface of this Node has an address in {', '.join(cidrs)}"
        )
    wanted = set(node_ips)
    for card in cards:
        if wanted.intersection(address.split("/")[0] for address in card.addresses):
            return card
    raise Unavailable(f"no interface has the Node's address {', '.join(sorted(wanted))}")


def _cards() -> tuple[Card, ...]:
    with Rtnl() as kernel:
        devices = [message.device_of(reply) for reply in kernel.ask(message.get_devices())]
        addresses = [message.address_of(reply) for reply in kernel.ask(get_addresses())]
        replies = [reply for family in message.get_routes() for reply in kernel.ask(family)]
    routes = [message.route_of(reply) for reply in replies if message.protocol_of(reply) != _PROTO_KERNEL]
    return tuple(
        Card(
            name=device.name,
            mac=device.mac,
            mtu=device.mtu,
            addresses=_addresses(addresses, device.index),
            routes=tuple(
                (route.dst if not route.dst.endswith("/0") else "", route.via)
                for route in routes
                if (route.index, route.table) == (device.index, MAIN) and route.via
            ),
        )
        for device in devices
    )


def _addresses(rows: Iterable[DeviceAddress], index: int) -> tuple[str, ...]:
    mine = (row.cidr for row in rows if row.index == index and row.is_global)
    return tuple(sorted(mine, key=lambda cidr: ":" in cidr))


def _flush(name: str) -> None:
    with Rtnl() as kernel:
        addresses = [
            device
            for device in map(message.device_of, kernel.ask(message.get_devices()))
            if device.name == name
        ]
        for device in addresses:
            for cidr in _addresses(map(message.address_of, kernel.ask(get_addresses())), device.index):
                _drop(kernel, device.index, Address(name, cidr))


def _drop(kernel: Rtnl, index: int, address: Address) -> None:
    """Drop an address; the kernel may have dropped it with the first address of its subnet."""
    try:
        kernel.ask(message.drop_address(index, address))
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
