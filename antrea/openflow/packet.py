"""The headers of an IP packet as they are: strangers write them.

Source: RFC 791, RFC 8200 (chain of headers), RFC 9293, RFC 768, RFC 9260 (ports), RFC 792, RFC 4443
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import msgspec

from antrea.errors import Invalid

TCP, UDP, SCTP, ICMP, ICMPV6, IGMP = 6, 17, 132, 1, 58, 2
WITH_PORTS = (TCP, UDP, SCTP)
IPV4, IPV6 = 0x0800, 0x86DD
ETHERNET = 14
"""Bytes of its header."""
_SYN, _ACK = 2, 16
_IPV4_HEADER, _IPV6_HEADER = 20, 40
_FRAGMENT = 44
_OPTIONS = (0, 43, 60)
"""Headers of IPv6 that have a length field: hop-by-hop, routing, destination."""
_MAX_HEADERS = 8
"""No legitimate chain is longer."""


class Packet(msgspec.Struct, frozen=True):
    """An IPv4 or IPv6 packet in its frame."""

    destination_mac: bytes
    source_mac: bytes
    ipv6: bool
    source: str
    destination: str
    protocol: int
    """Protocol of the payload, past the options of IPv6."""
    length: int
    """Bytes by its own word, from the IP header on."""
    header: bytes
    """Bytes from the IP header to the payload."""
    payload: bytes
    """Payload without padding; empty if the packet is not the first fragment."""
    first: bool
    """Whether it is whole, or the first of its fragments."""

    @property
    def hops(self) -> int:
        """Its time to live."""
        return self.header[7 if self.ipv6 else 8]

    @property
    def dscp(self) -> int:
        """The upper six bits of the traffic class."""
        return (int.from_bytes(self.header[:2]) >> (6 if self.ipv6 else 2)) & 0x3F

    @property
    def fragment_flags(self) -> int:
        """The three bits of IPv4; 0 of IPv6."""
        return 0 if self.ipv6 else self.header[6] >> 5

    @property
    def ports(self) -> tuple[int, int] | None:
        """Source and destination, if it has them."""
        if self.protocol not in WITH_PORTS or len(self.payload) < 4:
            return None
        return int.from_bytes(self.payload[:2]), int.from_bytes(self.payload[2:4])

    @property
    def is_tcp_opening(self) -> bool:
        """Whether it is the first segment of a connection of TCP: SYN without ACK."""
        return self.protocol == TCP and len(self.payload) > 13 and self.payload[13] & (_SYN | _ACK) == _SYN


def packet(frame: bytes) -> Packet:
    """Raises Invalid for what is not an IP packet, or ends within its headers."""
    kind = int.from_bytes(_piece(frame, 12, 2, "the Ethernet header"))
    if kind == IPV4:
        return _ipv4(frame)
    if kind == IPV6:
        return _ipv6(frame)
    raise Invalid("packet", f"EtherType {kind:#06x} is not that of IP")


def _ipv4(frame: bytes) -> Packet:
    head = _piece(frame, ETHERNET, _IPV4_HEADER, "the IPv4 header")
    size = (head[0] & 0xF) * 4
    if head[0] >> 4 != 4 or size < _IPV4_HEADER:
        raise Invalid("packet", f"an IPv4 header starts with {head[0]:#04x}")
    head = _piece(frame, ETHERNET, size, "the options of IPv4")
    length = int.from_bytes(head[2:4])
    first = not int.from_bytes(head[6:8]) & 0x1FFF
    return Packet(
        destination_mac=frame[:6],
        source_mac=frame[6:12],
        ipv6=False,
        source=str(IPv4Address(head[12:16])),
        destination=str(IPv4Address(head[16:20])),
        protocol=head[9],
        length=length,
        header=head,
        payload=frame[ETHERNET + size : ETHERNET + max(size, length)] if first else b"",
        first=first,
    )


def _ipv6(frame: bytes) -> Packet:
    head = _piece(frame, ETHERNET, _IPV6_HEADER, "the IPv6 header")
    if head[0] >> 4 != 6:
        raise Invalid("packet", f"an IPv6 header starts with {head[0]:#04x}")
    protocol, size, first = _chain(frame, head[6])
    length = _IPV6_HEADER + int.from_bytes(head[4:6])
    return Packet(
        destination_mac=frame[:6],
        source_mac=frame[6:12],
        ipv6=True,
        source=str(IPv6Address(head[8:24])),
        destination=str(IPv6Address(head[24:40])),
        protocol=protocol,
        length=length,
        header=frame[ETHERNET : ETHERNET + size],
        payload=frame[ETHERNET + size : ETHERNET + max(size, length)] if first else b"",
        first=first,
    )


def _chain(frame: bytes, protocol: int) -> tuple[int, int, bool]:
    """Return the protocol after the options, its offset after the Ethernet header, and whether the packet is a first fragment."""
    size, first = _IPV6_HEADER, True
    for _ in range(_MAX_HEADERS):
        if protocol not in (*_OPTIONS, _FRAGMENT) or not first:
            return protocol, size, first
        head = _piece(frame, ETHERNET + size, 8, f"header {protocol} of IPv6")
        if protocol == _FRAGMENT:
            first = not int.from_bytes(head[2:4]) & 0xFFF8
            size += 8
        else:
            size += 8 + head[1] * 8
        protocol = head[0]
    raise Invalid("packet", f"more than {_MAX_HEADERS} headers of IPv6 before what it carries")


def _piece(frame: bytes, at: int, length: int, what: str) -> bytes:
    if at + length > len(frame):
        raise Invalid("packet", f"it ends within {what}, after {len(frame)} bytes")
    return frame[at : at + length]
