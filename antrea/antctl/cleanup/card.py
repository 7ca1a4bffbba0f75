"""Return of the transport interface from br-phy: it gets its addresses and routes back before the bridge is removed.

As a program it does so when the switch of a Node ends (build/image/start_ovs), so that the Node stays in its network.
"""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.antctl.cleanup.switch_record import read_record
from antrea.errors import Invalid, Unavailable
from antrea.facts.family import is_ipv6
from antrea.host.address import Address
from antrea.host.link import Link
from antrea.host.nft import SHIELD_TABLE, NftShield
from antrea.host.physical_bridge import PHYSICAL_BRIDGE
from antrea.host.route import PROTOCOL, Route
from antrea.outside.netlink import device_message
from antrea.outside.netlink import host_message as message
from antrea.outside.netlink.entry import KINDS, is_gone
from antrea.outside.netlink.iproute2 import run_nft
from antrea.outside.netlink.message import get_addresses
from antrea.outside.netlink.socket import Rtnl
from antrea.outside.nftables import text as nft_text
from antrea.outside.nftables.dump import tables

if TYPE_CHECKING:
    from antrea.host.physical_bridge import HeldCard

_UNMARKED: Final = -PROTOCOL
"""Category of addresses that do not carry Antrea's protocol number: protocol 0 is unset."""
_STATIC: Final = 4 - PROTOCOL
"""Category of routes with protocol RTPROT_STATIC, as an administrator's."""


def is_held(card: HeldCard) -> bool:
    """Whether the interface lacks one of its addresses, or br-phy exists. Raises OSError."""
    with Rtnl() as kernel:
        return _index(kernel, PHYSICAL_BRIDGE) > 0 or bool(_missing(kernel, card))


def return_card(card: HeldCard) -> None:
    """Give the interface its addresses and routes, let the kernel receive its frames, and remove br-phy; idempotent.

    The Node has its addresses at every moment. Raises OSError, SubprocessError, Unavailable; what was done stays.
    """
    with Rtnl() as kernel:
        missing = _missing(kernel, card)
        KINDS[Link].put(kernel, Link(card.interface, 0))
        for address in missing:
            KINDS[Address].put(kernel, Address(card.interface, address, category=_UNMARKED))
        _remove_shield(card.interface)
        _put_routes(kernel, card)
        remove_device(kernel, PHYSICAL_BRIDGE)


def _remove_shield(interface: str) -> None:
    """Remove the chain that drops what the kernel receives from the interface; those of Pods stay."""
    family, _, table = SHIELD_TABLE.partition(" ")
    if table in tables(family):
        shield = NftShield(interface)
        run_nft(f"{nft_text.add(shield)}\n{nft_text.delete(shield)}\n")


def _put_routes(kernel: Rtnl, card: HeldCard) -> None:
    """Add the routes in an order in which each next hop is known. Raises OSError for those that the kernel refuses."""
    left = [
        Route(dst=destination or ("::/0" if is_ipv6(via) else "0.0.0.0/0"), dev=card.interface, via=via, category=_STATIC)
        for destination, via in card.routes
    ]  # fmt: skip
    while left:
        refused = [(route, why) for route in left if (why := _refusal(kernel, route))]
        if len(refused) == len(left):
            route, why = refused[0]
            raise OSError(f"route {route.dst} via {route.via} on {card.interface}: {why}")
        left = [route for route, _ in refused]


def _refusal(kernel: Rtnl, route: Route) -> str:
    try:
        KINDS[Route].put(kernel, route)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def remove_device(kernel: Rtnl, name: str) -> None:
    """Remove an interface if it exists. Raises OSError."""
    try:
        kernel.ask(device_message.delete_device(name))
    except OSError as error:
        if not is_gone(error):
            raise


def _missing(kernel: Rtnl, card: HeldCard) -> list[str]:
    """Return the addresses of the record that the interface does not have. Raises OSError if there is no such interface."""
    index = _index(kernel, card.interface)
    if not index:
        raise OSError(
            f"this Node has no interface {card.interface}, whose addresses {PHYSICAL_BRIDGE} held; if the card was "
            "replaced, delete /var/run/antrea/openvswitch/conf.db on the Node and run the command again"
        )
    rows = map(message.address_of, kernel.ask(get_addresses()))
    present = {ipaddress.ip_interface(row.cidr) for row in rows if row.index == index}
    return [address for address in card.addresses if ipaddress.ip_interface(address) not in present]


def _index(kernel: Rtnl, name: str) -> int:
    """Return the index of an interface, 0 if it does not exist."""
    devices = map(message.device_of, kernel.ask(message.get_devices()))
    return next((device.index for device in devices if device.name == name), 0)


def main() -> None:
    """Return the interface that the database named on the command line records; exit with 1 if that failed."""
    try:
        card = read_record(Path(sys.argv[1])).card
        if card:
            return_card(card)
            print(f"{card.interface} has {', '.join(card.addresses)} again", flush=True)
    except (OSError, subprocess.SubprocessError, Invalid, Unavailable) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
