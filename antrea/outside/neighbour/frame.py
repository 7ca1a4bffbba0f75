"""Ethernet frames of ARP and neighbour discovery.

Source: RFC 826 (ARP), RFC 4861 (neighbour discovery: ICMPv6 with hop limit 255)
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv6Address

from antrea.openflow.checksum import summed

BROADCAST = b"\xff" * 6
ETH_P_ARP, ETH_P_IPV6 = 0x0806, 0x86DD
ALL_NODES = IPv6Address("ff02::1").packed


def arp_request(mac: bytes, sender: bytes, hardware: bytes, target: bytes) -> bytes:
    """An ARP broadcast from `mac`; `sender` and `target` are IPv4 addresses, `hardware` is the target's MAC (empty: zeros)."""
    header = struct.pack("!6s6sH", BROADCAST, mac, ETH_P_ARP)
    return header + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, sender, hardware, target)


def icmpv6(mac: bytes, source: bytes, group: bytes, body: bytes) -> bytes:
    """To the IPv6 multicast address `group`, from `mac` and the address `source`; `body` still lacks its checksum."""
    pseudo = source + group + struct.pack("!II", len(body), socket.IPPROTO_ICMPV6)
    header = struct.pack("!6s6sH", b"\x33\x33" + group[-4:], mac, ETH_P_IPV6)
    header += struct.pack("!IHBB", 6 << 28, len(body), socket.IPPROTO_ICMPV6, 255)
    return header + source + group + summed(body, 2, pseudo)


def arp_reply(mac: bytes, ip: bytes, asker: bytes, asker_ip: bytes) -> bytes:
    """To `asker`, which asked who has the IPv4 address `ip`: `mac` has."""
    header = struct.pack("!6s6sH", asker, mac, ETH_P_ARP)
    return header + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, mac, ip, asker, asker_ip)


def advertisement(mac: bytes, ip: bytes, asker: bytes, asker_ip: bytes) -> bytes:
    """A neighbour advertisement with the override flag: `mac` has the IPv6 address `ip`.

    Solicited, to who asked; to all nodes if the asker has no address yet.
    """
    flags = 3 << 29 if asker_ip else 1 << 29
    body = struct.pack("!BBHI16sBB6s", 136, 0, 0, flags, ip, 2, 1, mac)
    if not asker_ip:
        return icmpv6(mac, ip, ALL_NODES, body)
    return asker + icmpv6(mac, ip, asker_ip, body)[6:]
