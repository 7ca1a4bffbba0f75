"""The answer to a packet that is rejected, as its destination would give it.

TCP is answered as in RFC 9293 (3.10.7.1). To everything else a policy is a prohibition, as upstream answers it, and a port that
is not served is unreachable, as kube-proxy answers it; upstream prohibits that, too, which clients take for a host without a route.
Upstream's RST always acknowledges; the peer of a connection that is under way takes none but one with the number it expects next.
parity: pkg/agent/openflow/packetout.go
"""

from __future__ import annotations

import struct
from ipaddress import ip_address

from antrea.openflow.checksum import summed
from antrea.openflow.packet import ICMP, ICMPV6, IPV4, IPV6, TCP, Packet

HOPS = 128
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_TCP_HEADER, _QUOTED = 20, 8
_PROHIBITED, _PROHIBITED_V6 = (3, 10), (1, 1)
"""Type and code: unreachable, since a host or what is above it is prohibited."""
_NO_PORT, _NO_PORT_V6 = (3, 3), (1, 4)
"""Type and code: unreachable, since the port is not served."""
_ICMP_QUERIES = (0, 8, 13, 14)
_INFORMATION = 128
"""Types of ICMPv6 from here on are not errors."""


def answer(
    packet: Packet, source_mac: bytes, destination_mac: bytes, *, unserved: bool = False
) -> bytes | None:
    """The frame of the answer. None: there must not be one, as to a RST, to an error, and to later fragments.

    `unserved`: the packet is not forbidden, but its port is not served.
    """
    if not packet.first or not _answerable(packet):
        return None
    if packet.protocol == TCP:
        protocol, body = TCP, _reset(packet)
    else:
        protocol, body = ICMPV6 if packet.ipv6 else ICMP, _unreachable(packet, unserved=unserved)
    kind = IPV6 if packet.ipv6 else IPV4
    return destination_mac + source_mac + struct.pack("!H", kind) + _ip(packet, protocol, body)


def _answerable(packet: Packet) -> bool:
    given = packet.payload
    if ip_address(packet.destination).is_multicast or ip_address(packet.source).is_multicast:
        return False
    if packet.protocol == TCP:
        return len(given) >= _TCP_HEADER and not given[13] & _RST
    if packet.protocol == ICMP:
        return bool(given) and given[0] in _ICMP_QUERIES
    if packet.protocol == ICMPV6:
        return bool(given) and given[0] >= _INFORMATION
    return True


def _reset(packet: Packet) -> bytes:
    """With the number that the sender expects next, or as an answer to all that it has sent."""
    given = packet.payload
    source, destination, sequence, expected = struct.unpack("!HHII", given[:12])
    flags = given[13]
    if flags & _ACK:
        number, acknowledged, said = expected, 0, _RST
    else:
        data = max(0, packet.length - len(packet.header) - (given[12] >> 4) * 4)
        taken = sequence + data + bool(flags & _SYN) + bool(flags & _FIN)
        number, acknowledged, said = 0, taken & 0xFFFFFFFF, _RST | _ACK
    head = struct.pack("!HHIIBBHHH", destination, source, number, acknowledged, 5 << 4, said, 0, 0, 0)
    return summed(head, 16, _pseudo(packet, TCP, len(head)))


def _unreachable(packet: Packet, *, unserved: bool) -> bytes:
    """With the header of what it answers and the 8 bytes after it, which identify its socket."""
    reasons = (_NO_PORT, _NO_PORT_V6) if unserved else (_PROHIBITED, _PROHIBITED_V6)
    kind, code = reasons[packet.ipv6]
    body = struct.pack("!BBHI", kind, code, 0, 0) + packet.header + packet.payload[:_QUOTED]
    return summed(body, 2, _pseudo(packet, ICMPV6, len(body)) if packet.ipv6 else b"")


def _ip(packet: Packet, protocol: int, body: bytes) -> bytes:
    ends = ip_address(packet.destination).packed + ip_address(packet.source).packed
    if packet.ipv6:
        return struct.pack("!IHBB", 6 << 28, len(body), protocol, HOPS) + ends + body
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, HOPS, protocol, 0) + ends
    return summed(head, 10, b"") + body


def _pseudo(packet: Packet, protocol: int, length: int) -> bytes:
    """Return the pseudo-header that checksums cover."""
    ends = ip_address(packet.destination).packed + ip_address(packet.source).packed
    return ends + (
        struct.pack("!II", length, protocol) if packet.ipv6 else struct.pack("!HH", protocol, length)
    )
