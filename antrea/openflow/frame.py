"""A frame that the agent makes: one packet of TCP, UDP, ICMP echo or another protocol, over IPv4 or IPv6.

Source: RFC 791, RFC 8200, RFC 9293 (3.1), RFC 768, RFC 792, RFC 4443 (4.1)
"""

from __future__ import annotations

import struct
from ipaddress import ip_address

import msgspec

from antrea.openflow.checksum import summed
from antrea.openflow.packet import ICMP, ICMPV6, IPV4, IPV6, TCP, UDP

ECHO_REQUEST, ECHO_REQUEST_V6 = 8, 128
HOPS, SYN = 64, 2
_WINDOW = 65535


class Headers(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the headers of a packet; `source` and `destination` are of one family."""

    source_mac: str = ""
    destination_mac: str = ""
    source: str = ""
    destination: str = ""
    protocol: int = 0
    hops: int = HOPS
    """Time to live."""
    fragment_flags: int = 0
    """The three bits of IPv4; 2 is "do not fragment"."""
    dscp: int = 0
    source_port: int = 0
    destination_port: int = 0
    tcp_flags: int = SYN
    icmp_id: int = 0
    icmp_sequence: int = 0


def frame(headers: Headers) -> bytes:
    """Build a frame from the Ethernet header on. Raises ValueError for invalid addresses."""
    source, destination = ip_address(headers.source), ip_address(headers.destination)
    ends = source.packed + destination.packed
    macs = _mac(headers.destination_mac) + _mac(headers.source_mac)
    if source.version == 6:
        body = _body(headers, ends, v6=True)
        head = struct.pack("!IHBB", 6 << 28 | headers.dscp << 22, len(body), headers.protocol, headers.hops)
        return macs + struct.pack("!H", IPV6) + head + ends + body
    body = _body(headers, ends, v6=False)
    length, fragment = 20 + len(body), headers.fragment_flags << 13
    head = struct.pack(
        "!BBHHHBBH", 0x45, headers.dscp << 2, length, 0, fragment, headers.hops, headers.protocol, 0
    )
    return macs + struct.pack("!H", IPV4) + summed(head + ends, 10, b"") + body


def _body(headers: Headers, ends: bytes, *, v6: bool) -> bytes:
    ports = headers.source_port, headers.destination_port
    if headers.protocol == TCP:
        text = struct.pack("!HHIIBBHHH", *ports, 0, 0, 5 << 4, headers.tcp_flags, _WINDOW, 0, 0)
        return summed(text, 16, _pseudo(ends, TCP, len(text), v6=v6))
    if headers.protocol == UDP:
        text = struct.pack("!HHHH", *ports, 8, 0)
        return summed(text, 6, _pseudo(ends, UDP, len(text), v6=v6))
    if headers.protocol in (ICMP, ICMPV6):
        kind = ECHO_REQUEST_V6 if v6 else ECHO_REQUEST
        text = struct.pack("!BBHHH", kind, 0, 0, headers.icmp_id, headers.icmp_sequence)
        return summed(text, 2, _pseudo(ends, ICMPV6, len(text), v6=True) if v6 else b"")
    return b""


def _pseudo(ends: bytes, protocol: int, length: int, *, v6: bool) -> bytes:
    """Return the pseudo-header that checksums cover."""
    return ends + (struct.pack("!II", length, protocol) if v6 else struct.pack("!HH", protocol, length))


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
