"""How a number travels with a packet where OVS and the host, or two switches, meet: as a packet mark, or in the source MAC.

On datapath `system` OVS and the host share the packet, its mark and its tunnel's destination. On `netdev` a frame is
all that crosses the tap of antrea-gw0, and a tunnel ends only at addresses of br-phy. There the source MAC of the frame,
which is not used otherwise, carries it: of antrea-gw0 the mark, inside a tunnel which Egress IP the packet is for. The other half,
actions and matches of flows, is antrea/features/framework/packet_mark.py.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from antrea.host.link import Dummy, Link, Vlan
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet, NftTag
from antrea.host.ovs_port import TYPE_KEY, Port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.facts.node import Transport

MARK_SET: Final = "carried-mark"
CHAIN: Final = NftChain(
    name="prerouting-mangle", hook="type filter hook prerouting priority mangle; policy accept;"
)
MAX_MARKS: Final = 0xFF
"""Maximum number of marks, by the width of the field that OVS sets."""
HOLDER_TYPE: Final = "egress"
"""antrea-type of a port of OVS that only has addresses."""
RELAYED_MACS: Final = tuple(f"02:ea:00:00:00:0{hop}" for hop in (1, 2, 3))
"""Source inside a tunnel of a packet of a connection that its sender does not track, by how often it was sent on."""
RELAYED_MASK: Final = "ff:ff:ff:ff:ff:fc"
"""Mask that matches all relayed packets."""
_MARK_PREFIX, _HOP_PREFIX, _IP_PREFIX, _DEVICE_PREFIX = "02:e9", "02:eb", "06", "0e"
"""Locally administered, of one host (IEEE 802, 8.2): no card has them."""


def mark_mac(mark: int) -> str:
    """The source MAC that stands for a packet mark of 32 bits."""
    return f"{_MARK_PREFIX}:{mark.to_bytes(4).hex(':')}"


def mac_mark(mac: bytes) -> int:
    """The packet mark that a source MAC stands for; 0: it is that of a card."""
    prefix = bytes.fromhex(_MARK_PREFIX.replace(":", ""))
    return int.from_bytes(mac.removeprefix(prefix)) if mac.startswith(prefix) else 0


def hop_mac(number: int) -> str:
    """The source MAC by which the host finds the Node that a packet of the switch is to be passed on to."""
    return f"{_HOP_PREFIX}:{number.to_bytes(4).hex(':')}"


def ip_mac(ip: str) -> str:
    """The source MAC that stands for an Egress IP, the same on every Node: 40 bits of a digest, as IPv6 has 128."""
    return _digest_mac(_IP_PREFIX, ip)


def crosses(datapath: str) -> bool:
    """Whether packet marks cross antrea-gw0 as they are, and tunnels may end at any address of the Node."""
    return datapath != "netdev"


def reading_entries(datapath: str, gateway: str) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield entries by which the host reads marks on `gateway`: none where marks cross the datapath."""
    if crosses(datapath):
        return
    yield CHAIN
    yield NftSet(name=MARK_SET, type="ether_addr", data="mark")
    yield NftRule(
        chain=CHAIN.name,
        name="marks from OVS",
        text=f'iifname "{gateway}" meta mark set ether saddr map @{MARK_SET}',
    )
    # the switch may go on for a moment with a mark that has just been taken back
    yield NftRule(
        chain=CHAIN.name,
        name="no mark that is not known",
        text=f'iifname "{gateway}" ether saddr {mark_mac(1)}-{mark_mac(MAX_MARKS)} meta mark 0x00000000 drop',
        order=101,
    )


def mark_entry(datapath: str, mark: int) -> Iterator[NftElement]:
    """Yield entries by which the host reads this mark."""
    if not crosses(datapath):
        yield NftElement(set=MARK_SET, value=mark_mac(mark), data=f"{mark:#010x}")


def telling_entry(datapath: str, gateway: str, mask: int) -> Iterator[NftTag]:
    """Yield entries by which OVS receives a bit of the mark of packets from `gateway`: none where marks cross the datapath."""
    if not crosses(datapath):
        yield NftTag(dev=gateway, bit=mask, mac=mark_mac(mask))


def vlan_device(datapath: str, name: str, link: Transport, vlan: int, mac: str, category: int) -> Port | Vlan:
    """A device on the Node's card, in one VLAN: the kernel's, or of OVS where that has the card."""
    if crosses(datapath):
        return Vlan(name=name, card=link.interface, vlan=vlan, mac=mac)
    ids = ((TYPE_KEY, HOLDER_TYPE),)
    return Port(
        name=name,
        type="internal",
        external_ids=ids,
        mac=mac,
        tag=vlan,
        bridge=link.device,
        category=int(category),
    )


def own_mac(node: str, name: str) -> str:
    """A MAC address for a device of a Node, always the same and unique to it."""
    return _digest_mac(_DEVICE_PREFIX, f"{node}/{name}")


def kernel_holder(datapath: str, name: str) -> Iterator[Dummy]:
    """A device that goes nowhere and has addresses: the kernel's, unless that may have none (`switch_holder`)."""
    if crosses(datapath):
        yield Dummy(name)


def switch_holder(datapath: str, name: str, category: int) -> Iterator[Port | Link]:
    """A port of OVS that sends nothing and has addresses, where `kernel_holder` has none."""
    if crosses(datapath):
        return
    ids = ((TYPE_KEY, HOLDER_TYPE),)
    yield Port(name=name, type="internal", external_ids=ids, no_flood=True, category=int(category))
    yield Link(name, 0)


def _digest_mac(prefix: str, text: str) -> str:
    return f"{prefix}:{hashlib.sha256(text.encode()).digest()[:5].hex(':')}"
