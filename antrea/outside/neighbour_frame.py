"""Whole Ethernet frames in which neighbours speak of their addresses.

Source: RFC 826 (ARP), RFC 4861 (neighbour discovery: ICMPv6 with hop limit 255)
"""

from __future__ import annotations

import socket
import struct

from antrea.openflow.checksum import summed

BROADCAST = b"\xff" * 6
ETH_P_ARP, ETH_P_IPV6 = 0x0806, 0x86DD


def arp_request(mac: bytes, sender: bytes, hardware: bytes, target: bytes) -> bytes:
    """To all, from `mac`; `sender` and `target` are IPv4 addresses, `hardware` what is said of the target's (empty: zeros)."""
    header = struct.pack("!6s6sH", BROADCAST, mac, ETH_P_ARP)
    return header + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, sender, hardware, target)


def icmpv6(mac: bytes, source: bytes, group: bytes, body: bytes) -> bytes:
    """To the IPv6 multicast address `group`, from `mac` and the address `source`; `body` still lacks its checksum."""
    pseudo = source + group + struct.pack("!II", len(body), socket.IPPROTO_ICMPV6)
    header = struct.pack("!6s6sH", b"\x33\x33" + group[-4:], mac, ETH_P_IPV6)
    header += struct.pack("!IHBB", 6 << 28, len(body), socket.IPPROTO_ICMPV6, 255)
    return header + source + group + summed(body, 2, pseudo)
