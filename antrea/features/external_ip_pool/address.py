"""Addresses of a pool that are allocated automatically, and their order.

parity: pkg/ipam/ipallocator/allocator.go
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from antrea.features.framework.ip_range import Address, Span

MAX_ADDRESSES = 65536
"""Maximum number of addresses of one range that are allocated automatically; further ones may be requested by name."""
BLOCK = 256
"""Number of addresses that are checked together."""


def bounds(span: Span) -> tuple[int, int]:
    """The first and last address that an owner can have: of a CIDR neither that of the network nor IPv4's broadcast."""
    if "/" not in span.text:
        return span.first, span.last
    return span.first + 1, span.last - (span.family == 4)


def usable(spans: Iterable[Span], address: Address) -> bool:
    """Whether an owner can have it."""
    return any(
        span.family == address.version and first <= int(address) <= last
        for span, (first, last) in ((span, bounds(span)) for span in spans)
    )


def given(span: Span) -> range:
    """The addresses of one range that are given away by themselves."""
    first, last = bounds(span)
    # parity: of a larger IPv4 CIDR upstream does not give the last of these
    most = MAX_ADDRESSES - ("/" in span.text and span.family == 4)
    return range(first, max(first, min(last + 1, first + most)))


def total(spans: Iterable[Span]) -> int:
    """How many addresses a pool has to give."""
    return sum(len(given(span)) for span in spans)


def free(spans: Iterable[Span], taken: Callable[[int, int], Collection[int]]) -> Iterator[str]:
    """Free addresses, range by range, the lowest first; `taken(family, block)` are those of a block of 256."""
    for span in spans:
        kind = IPv4Address if span.family == 4 else IPv6Address
        numbers = given(span)
        for block in range(numbers.start // BLOCK, -(-numbers.stop // BLOCK)) if numbers else ():
            gone = taken(span.family, block)
            here = range(max(numbers.start, block * BLOCK), min(numbers.stop, (block + 1) * BLOCK))
            if len(gone) < BLOCK:
                yield from (str(kind(number)) for number in here if number not in gone)
