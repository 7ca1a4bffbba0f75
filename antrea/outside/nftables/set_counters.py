"""Counters of the elements of a set, read from the kernel without libnftables, which takes 15 µs for the text of each.

Source: linux/netfilter/nf_tables.h (NFT_MSG_GETSETELEM), net/netfilter/nf_tables_api.c nf_tables_fill_setelem, netlink(7)
"""

from __future__ import annotations

import re
import struct
from typing import Final

from antrea.outside.nftables.dump import dump
from antrea.outside.nftables.nfnetlink import attribute, dump_request

_GET: Final = 10 << 8 | 13
"""NFNL_SUBSYS_NFTABLES, NFT_MSG_GETSETELEM"""
_NETDEV: Final = 5
"""NFPROTO_NETDEV"""
_TABLE, _SET = 1, 2
_COUNTER: Final = struct.Struct("!Q4xQ")


def _begin(kind: int, size: int) -> bytes:
    """How an attribute with so many bytes begins."""
    return re.escape(struct.pack("=HH", 4 + size, kind))


def _pattern(size: int) -> re.Pattern[bytes]:
    """Return a pattern of elements whose key has so many bytes, with a counter as their first expression: the key, bytes and packets."""
    key = _begin(1, 4 + size) + _begin(1, size) + b"(.{%d})" % size
    counts = _begin(1, 8) + b"(.{8}" + _begin(2, 8) + b".{8})"
    body = _begin(1, 8) + b"counter\\0" + _begin(2, 24) + counts
    return re.compile(key + _begin(7, 40) + body, re.DOTALL)


_ELEMENTS: Final = {size: _pattern(size) for size in (20, 44)}
"""Patterns by bytes of the key: two addresses, a protocol and two ports, in four bytes each but for addresses of IPv6."""


def counts_of(counter: bytes) -> tuple[int, int]:
    """Packets and bytes of a counter as it was read."""
    byte_count, packets = _COUNTER.unpack(counter)
    return packets, byte_count


class SetCounters:
    """Counters of a table of family netdev, in the network namespace of the thread that reads."""

    def __init__(self, table: str) -> None:
        self._table = attribute(_TABLE, table.encode() + b"\0")

    def read(self, name: str, size: int) -> dict[bytes, bytes]:
        """Counters by keys, which have so many bytes. Raises Unavailable."""
        request = dump_request(_GET, _NETDEV, self._table + attribute(_SET, name.encode() + b"\0"))

        def add(counters: dict[bytes, bytes], byte_count: bytes) -> None:
            counters.update(_ELEMENTS[size].findall(byte_count))

        return dump(request, f"counters of set {name}", dict[bytes, bytes], add)[0]
