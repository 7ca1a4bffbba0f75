"""What is left of a block without its exceptions, how many networks that takes, and how many a policy may have.

A hole of one address in all of IPv4 costs up to 32 flows, one in IPv6 128: a policy of a few KiB could ask for more flows
than all others together. What is above the bound is not enforced, and closed (`unenforced.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.controlplane import IPBlock, IPNet, NetworkPolicyRule

MAX_HOLES, MAX_NETWORKS = 4096, 16384
"""In all rules of one policy: exceptions, and networks that remain of the blocks that have some."""
EXCESS = (
    f"the exceptions (ipBlock.except) of one policy are more than {MAX_HOLES},"
    f" or leave more than {MAX_NETWORKS} networks"
)
IPV4, IPV6 = 32, 128
"""Bits of an address."""
_MAPPED, _LOW = 0xFFFF, 0xFFFFFFFF


class Span(NamedTuple):
    """The addresses of a network as numbers, both ends included; `width` is the bits of its family."""

    width: int
    first: int
    last: int


def span(net: IPNet) -> Span:
    """Raises ValueError.

    Where a controller of upstream got IPv4 as IPv6, the length of its prefix is that of IPv6.
    """
    number, bits, width = int.from_bytes(net.ip), net.prefix_length, IPV6
    if number >> IPV4 == _MAPPED and not IPV4 < bits < IPV6 - IPV4:
        number, width = number & _LOW, IPV4
        bits -= IPV6 - IPV4 if bits > IPV4 else 0
    if len(net.ip) * 8 != IPV6 or not 0 <= bits <= width:
        raise ValueError(f"{net.ip.hex()}/{net.prefix_length} is no network")
    size = 1 << (width - bits)
    first = number - number % size
    return Span(width, first, first + size - 1)


def pieces(block: IPBlock) -> Iterator[tuple[int, int, int]]:
    """Bits of an address, first address and length of prefix of each network that is left of a block, in their order.

    They are as few as possible. n exceptions take n log n steps. Raises ValueError.
    """
    whole = span(block.cidr)
    holes = sorted(hole for hole in map(span, block.except_) if hole.width == whole.width)
    at = whole.first
    for hole in holes:
        if hole.first > whole.last:
            break
        yield from _aligned(whole.width, at, hole.first - 1)
        at = max(at, hole.last + 1)
    yield from _aligned(whole.width, at, whole.last)


def _aligned(width: int, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The fewest networks that make up these addresses; none if `last` is before `first`."""
    while first <= last:
        room = (last - first + 1).bit_length() - 1
        free = (first & -first).bit_length() - 1 if first else width
        bits = min(room, free)
        yield width, first, width - bits
        first += 1 << bits


class Budget:
    """Exceptions and networks that the rules of one policy have left."""

    def __init__(self) -> None:
        self._holes, self._networks = MAX_HOLES, MAX_NETWORKS

    def exceeded(self, rule: NetworkPolicyRule) -> bool:
        """Whether this rule has more than is left; one without exceptions needs none of it. Raises ValueError."""
        blocks = [one for one in (*rule.from_.ip_blocks, *rule.to.ip_blocks) if one.except_]
        self._holes -= sum(len(one.except_) for one in blocks)
        if self._holes >= 0:
            self._networks -= _count(blocks, self._networks + 1)
        return bool(blocks) and (self._holes < 0 or self._networks < 0)


def _count(blocks: Iterable[IPBlock], most: int) -> int:
    """Networks that are left of all blocks; not counted further than `most`."""
    found = 0
    for one in blocks:
        for _ in pieces(one):
            found += 1
            if found >= most:
                return found
    return found
