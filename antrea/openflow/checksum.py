"""The Internet checksum, which IPv4, TCP and ICMP of both families have."""

from __future__ import annotations

import struct


def checksum(data: bytes) -> int:
    """Return the checksum of all of `data`, in which its place is 0. Source: RFC 1071"""
    even = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(even) // 2}H", even))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def summed(text: bytes, at: int, beside: bytes) -> bytes:
    """`text` with the checksum of it and of `beside` in two bytes `at`."""
    return text[:at] + struct.pack("!H", checksum(beside + text)) + text[at + 2 :]
