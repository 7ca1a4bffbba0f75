"""Frames as another Node's switch sends them by the tunnel."""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_address

from antrea.openflow.checksum import summed

_TUNNEL_MAC = "aabbccddeeff"


def _summed(source: str, target: str, protocol: int, body: bytes, at: int) -> bytes:
    """A datagram or segment with the sum that belongs at this place of it, which is 0."""
    ends = ip_address(source).packed + ip_address(target).packed
    return summed(body, at, ends + struct.pack("!II", len(body), protocol))


def frame(mac: str, source: str, target: str, protocol: int, body: bytes) -> bytes:
    """From `mac`, with a hop limit of 60."""
    ends = ip_address(source).packed + ip_address(target).packed
    if ip_address(target).version == 6:
        head = struct.pack("!IHBB", 6 << 28, len(body), protocol, 60) + ends
    else:
        head = summed(
            struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 60, protocol, 0) + ends, 10, b""
        )
    kind = 0x86DD if ip_address(target).version == 6 else 0x0800
    return bytes.fromhex(_TUNNEL_MAC + mac.replace(":", "")) + struct.pack("!H", kind) + head + body


def datagram(source: str, target: str, ports: tuple[int, int], data: bytes) -> bytes:
    """UDP."""
    body = struct.pack("!HHHH", *ports, 8 + len(data), 0) + data
    return _summed(source, target, socket.IPPROTO_UDP, body, 6)


def segment(source: str, target: str, ports: tuple[int, int], sequence: int, ack: int, flags: int) -> bytes:
    """TCP, from the middle of a connection, with a byte of data unless it ends that."""
    data = b"" if flags & 0x4 else b"x"
    body = struct.pack("!HHIIBBHHH", *ports, sequence, ack, 5 << 4, flags, 512, 0, 0) + data
    return _summed(source, target, socket.IPPROTO_TCP, body, 16)
