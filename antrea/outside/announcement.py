"""Frames that tell neighbours which MAC an address has now: gratuitous ARP and unsolicited neighbour advertisement."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterable  # noqa: TC003

_ETH_P_ARP, _ETH_P_IPV6 = 0x0806, 0x86DD
_BROADCAST = b"\xff" * 6
_ALL_NODES = ipaddress.IPv6Address("ff02::1").packed
_ALL_NODES_MAC = bytes.fromhex("333300000001")


def announcement(mac: str, ip: str) -> bytes:
    """The whole Ethernet frame, from `mac`, for one address of either family."""
    address = ipaddress.ip_address(ip)
    source = bytes.fromhex(mac.replace(":", ""))
    return (
        gratuitous_arp(source, address.packed)
        if address.version == 4
        else unsolicited_na(source, address.packed)
    )


def gratuitous_arp(mac: bytes, ip: bytes) -> bytes:
    """A broadcast ARP request of an address for itself (RFC 5227, 3).

    # parity: pkg/agent/util/arping/arping_linux.go newARPRequest, target hardware address included
    """
    header = struct.pack("!6s6sH", _BROADCAST, mac, _ETH_P_ARP)
    return header + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, ip, _BROADCAST, ip)


def unsolicited_na(mac: bytes, ip: bytes) -> bytes:
    """A neighbour advertisement to all nodes with the override flag (RFC 4861, 4.4 and 7.2.6)."""
    body = struct.pack("!BBHI16sBB6s", 136, 0, 0, 1 << 29, ip, 2, 1, mac)
    pseudo = ip + _ALL_NODES + struct.pack("!II", len(body), socket.IPPROTO_ICMPV6)
    body = body[:2] + struct.pack("!H", _checksum(pseudo + body)) + body[4:]
    header = struct.pack("!IHBB", 6 << 28, len(body), socket.IPPROTO_ICMPV6, 255) + ip + _ALL_NODES
    return struct.pack("!6s6sH", _ALL_NODES_MAC, mac, _ETH_P_IPV6) + header + body


def send(if_name: str, frames: Iterable[bytes]) -> None:
    """Send from an interface of the namespace this thread is in. Raises OSError (no such device, network is down)."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((if_name, 0))
        for frame in frames:
            link.send(frame)


def _checksum(data: bytes) -> int:
    """RFC 1071; `data` has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
