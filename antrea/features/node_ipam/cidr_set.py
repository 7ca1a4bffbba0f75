"""Pod CIDRs of one size within a cluster CIDR: which of them are taken, and the next free one.

parity: third_party/ipam/nodeipam/ipam/cidrset
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


Key = TypeVar("Key")


class Range(NamedTuple):
    """Numbers of CIDRs, the first and the last."""

    first: int
    last: int


class CidrSet:
    """CIDRs of `size` within `network`, numbered from 0. A taken range has owners: names of Nodes, or what else is there."""

    def __init__(self, network: str, size: int) -> None:
        self._network = ip_network(network)
        self._size = size
        self._count = 1 << (size - self._network.prefixlen)
        self._single: dict[int, set[str]] = {}
        self._wide: dict[Range, set[str]] = {}
        self._next = 0

    def occupy(self, cidr: str, owner: str) -> set[str]:
        """Take all that overlaps `cidr`; return the other owners of it. Outside the network there is nothing to take."""
        numbers = self._range(cidr)
        if numbers is None:
            return set()
        others = self._owners(numbers) - {owner}
        held = (
            self._single.setdefault(numbers.first, set())
            if numbers.first == numbers.last
            else self._wide.setdefault(numbers, set())
        )
        held.add(owner)
        return others

    def release(self, cidr: str, owner: str) -> None:
        """Free what `owner` has; it stays taken while another one has it."""
        numbers = self._range(cidr)
        if numbers is None:
            return
        if numbers.first == numbers.last:
            _leave(self._single, numbers.first, owner)
        else:
            _leave(self._wide, numbers, owner)

    def allocate(self, owner: str) -> str:
        """Take the next free CIDR, in a circle, so that one that was freed is not in use again at once; empty if there is none."""
        if len(self._single) >= self._count:
            return ""
        number, looked = self._next, 0
        while looked < self._count:
            if number >= self._count:
                number = 0
            end = max((wide.last for wide in self._wide if wide.first <= number <= wide.last), default=-1)
            if end >= 0:
                looked += end - number + 1
                number = end + 1
            elif number in self._single:
                looked += 1
                number += 1
            else:
                self._single[number] = {owner}
                self._next = number + 1
                return self._cidr(number)
        return ""

    def holds(self, cidr: str) -> bool:
        """Return whether `cidr` is one that this set allocates."""
        network = ip_network(cidr, strict=False)
        return network.prefixlen == self._size and self._range(cidr) is not None

    @property
    def description(self) -> str:
        """The set in words, for messages."""
        return f"{self._count} CIDRs of length /{self._size} in {self._network}"

    def _owners(self, here: Range) -> set[str]:
        wide = (
            owners
            for held, owners in self._wide.items()
            if held.first <= here.last and here.first <= held.last
        )
        places: Iterable[int] = range(here.first, here.last + 1)
        if here.last - here.first > len(self._single):
            places = (number for number in self._single if here.first <= number <= here.last)
        single = (self._single.get(number, set()) for number in places)
        return set().union(*wide, *single)

    def _range(self, cidr: str) -> Range | None:
        network = ip_network(cidr, strict=False)
        if network.version != self._network.version or not network.overlaps(self._network):
            return None
        shift, base = self._network.max_prefixlen - self._size, int(self._network.network_address)
        first = max(int(network.network_address), base) - base
        last = min(int(network.broadcast_address), int(self._network.broadcast_address)) - base
        return Range(first >> shift, last >> shift)

    def _cidr(self, number: int) -> str:
        shift = self._network.max_prefixlen - self._size
        address = self._network[number << shift]
        return f"{address}/{self._size}"


def _leave(held: dict[Key, set[str]], key: Key, owner: str) -> None:
    """Remove an owner, and what has none any more."""
    owners = held.get(key, set())
    owners.discard(owner)
    if not owners:
        held.pop(key, None)
