"""Blocks with exceptions: the remaining networks, their number, and its bound for a policy.

An exception of one address from all of IPv4 costs up to 32 flows, one from IPv6 128: a policy of a few KiB could need more
flows than all others together. What is above the bound is not enforced, and closed (`unrealized.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.controlplane import IPBlock, IPNet, NetworkPolicyRule

MAX_EXCEPTIONS, MAX_NETWORKS = 4096, 16384
"""Maximum number of exceptions, and of networks that remain of blocks with exceptions, in all rules of one policy."""
EXCESS = (
    f"the exceptions (ipBlock.except) of one policy are more than {MAX_EXCEPTIONS},"
    f" or leave more than {MAX_NETWORKS} networks"
)
IPV4, IPV6 = 32, 128
"""Bits of an address by family."""
_MAPPED, _LOW = 0xFFFF, 0xFFFFFFFF


class Span(NamedTuple):
    """Addresses of a network as numbers, both ends included; `width` is the bits of its family."""

    width: int
    first: int
    last: int


def span(net: IPNet) -> Span:
    """Return the addresses of a network. Raises ValueError.

    Where a controller of upstream got IPv4 as IPv6, the length of its prefix is that of IPv6.
    """
    number, bits, width = int.from_bytes(net.ip), net.prefix_length, IPV6
    if number >> IPV4 == _MAPPED and not IPV4 < bits < IPV6 - IPV4:
        number, width = number & _LOW, IPV4
        bits -= IPV6 - IPV4 if bits > IPV4 else 0
    if len(net.ip) * 8 != IPV6 or not 0 <= bits <= width:
        raise ValueError(f"{net.ip.hex()}/{net.prefix_length} is not a network")
    size = 1 << (width - bits)
    first = number - number % size
    return Span(width, first, first + size - 1)


def pieces(block: IPBlock) -> Iterator[tuple[int, int, int]]:
    """Yield bits of an address, first address and prefix length of each network that remains of a block, in their order.

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
    """Yield the fewest networks that make up these addresses; none if `last` is before `first`."""
    while first <= last:
        room = (last - first + 1).bit_length() - 1
        free = (first & -first).bit_length() - 1 if first else width
        bits = min(room, free)
        yield width, first, width - bits
        first += 1 << bits


class Budget:
    """Remaining number of exceptions and networks for the rules of one policy."""

    def __init__(self) -> None:
        self._holes, self._networks = MAX_EXCEPTIONS, MAX_NETWORKS

    def exceeded(self, rule: NetworkPolicyRule) -> bool:
        """Whether this rule exceeds the remainder; one without exceptions needs none of it. Raises ValueError."""
        blocks = [block for block in (*rule.from_.ip_blocks, *rule.to.ip_blocks) if block.except_]
        self._holes -= sum(len(block.except_) for block in blocks)
        if self._holes >= 0:
            self._networks -= _count(blocks, self._networks + 1)
        return bool(blocks) and (self._holes < 0 or self._networks < 0)


def _count(blocks: Iterable[IPBlock], most: int) -> int:
    """Count the networks that remain of all blocks, up to `most`."""
    count = 0
    for block in blocks:
        for _ in pieces(block):
            count += 1
            if count >= most:
                return count
    return count
