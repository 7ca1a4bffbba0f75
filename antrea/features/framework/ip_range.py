"""Address ranges of pools: parsing, overlaps, and the subnet that they must be in.

parity: pkg/controller/validation/ippool.go
"""

from __future__ import annotations

import bisect
import itertools
import re
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.errors import Invalid
from antrea.features.framework.address import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Address = IPv4Address | IPv6Address
UNUSABLE_NETWORKS: Final = tuple(
    (f"{kind} addresses ({cidr})", ip_network(cidr))
    for kind, cidr in (
        ("unspecified", "0.0.0.0/8"),
        ("loopback", "127.0.0.0/8"),
        ("the host's and switch's own", "169.254.0.0/24"),
        ("cloud metadata", "169.254.169.252/30"),
        ("cloud metadata", "169.254.170.0/24"),
        ("the host's and switch's own", "169.254.224.0/20"),
        ("multicast", "224.0.0.0/4"),
        ("broadcast", "255.255.255.255/32"),
        ("unspecified", "::/128"),
        ("loopback", "::1/128"),
        ("IPv4-mapped", "::ffff:0:0/96"),
        ("link-local", "fe80::/10"),
        ("the host's and switch's own", "fc01::aabb:ccdd:eef0/124"),
        ("multicast", "ff00::/8"),
    )
)
"""Addresses with which no Node can send to outside, and which cannot be reached from there.

Other link-local addresses of IPv4 are in use as Egress IPs and addresses of Services on one segment, also by upstream's end-to-end tests.
"""


class Span(msgspec.Struct, frozen=True):
    """One range as it was written, and its first and last address as numbers of one family (4 or 6)."""

    text: str
    family: int
    first: int
    last: int

    def overlaps(self, other: Span) -> bool:
        return self.family == other.family and self.first <= other.last and self.last >= other.first

    def holds(self, address: Address) -> bool:
        return self.family == address.version and self.first <= int(address) <= self.last


UNUSABLE_SPANS: Final = tuple(
    (what, Span("", network.version, int(network[0]), int(network[-1])))
    for what, network in UNUSABLE_NETWORKS
)


def single_address(address: Address) -> Span:
    """Return the range of one address."""
    return Span(str(address), address.version, int(address), int(address))


def unusable_addresses(tested: Span) -> str:
    """Return which of the range's addresses cannot be used outside; empty if none."""
    what = next((what for what, span in UNUSABLE_SPANS if tested.overlaps(span)), "")
    return what and f"{what}, with which no Node can send"


@lru_cache(1024)
def unusable(ip: str) -> str:
    """Return the kind of a canonical address that no Node, Service or router has outside; empty if they can have it."""
    tested = single_address(ip_address(ip))
    return next((what for what, span in UNUSABLE_SPANS if tested.overlaps(span)), "")


def usable(text: str) -> str:
    """Return the canonical form of an address that a Node can send with; empty if invalid or of another kind."""
    ip = canonical(text)
    return "" if not ip or unusable(ip) else ip


@lru_cache(1024)
def unusable_network(cidr: str, *, neighbours: bool = False) -> str:
    """Return the kind of a network of only unusable addresses; with `neighbours`, link-local ones are usable, as sources of
    packets.
    """
    network = ip_network(cidr, strict=False)
    tested = Span(cidr, network.version, int(network[0]), int(network[-1]))
    return next(
        (
            what
            for what, span in UNUSABLE_SPANS
            if not (neighbours and what.startswith("link-local"))
            and tested.family == span.family
            and span.first <= tested.first
            and tested.last <= span.last
        ),
        "",
    )


def prefix(cidr: str) -> IPv4Interface | IPv6Interface:
    """The address and network of a CIDR as Go reads it: no bare address, no netmask, no zone. Raises ValueError."""
    if not re.fullmatch(r"[^/%]+/[0-9]{1,3}", cidr):
        raise ValueError(cidr)
    return ip_interface(cidr)


def span(cidr: str, start: str, end: str, path: str) -> Span:
    """The range of a CIDR, or else of a start and an end. Raises Invalid below `path`."""
    if cidr:
        try:
            network = prefix(cidr).network
        except ValueError as error:
            raise Invalid(f"{path}.cidr", f"invalid cidr {cidr}") from error
        return Span(cidr, network.version, int(network[0]), int(network[-1]))
    first, last = _address(start, f"{path}.start", "start"), _address(end, f"{path}.end", "end")
    if first.version != last.version:
        raise Invalid(f"{path}.end", f"range start {start} and range end {end} should belong to same family")
    if int(first) > int(last):
        raise Invalid(f"{path}.end", f"range start {start} should not be greater than range end {end}")
    return Span(f"{start}-{end}", first.version, int(first), int(last))


def subnet(gateway: str, prefix_length: int, path: str = "spec.subnetInfo") -> Span:
    """The subnet that all ranges of a pool lie in. Raises Invalid."""
    try:
        version = ip_address(gateway).version
    except ValueError as error:
        raise Invalid(f"{path}.gateway", f"invalid gateway address {gateway}") from error
    if not 0 < prefix_length < (32 if version == 4 else 128):
        raise Invalid(f"{path}.prefixLength", f"invalid prefixLength {prefix_length}")
    network = ip_interface(f"{gateway}/{prefix_length}").network
    return Span(f"{gateway}/{prefix_length}", version, int(network[0]), int(network[-1]))


def check_inside(spans: Sequence[Span], within: Span | None) -> None:
    """Check that every range is in `within` and none overlaps another of the same pool. Raises Invalid."""
    seen: list[
        tuple[int, int, int]
    ] = []  # family, first address and index of ranges so far, none over another
    for index, tested in enumerate(spans):
        path = f"spec.ipRanges[{index}]"
        if within and not (
            tested.family == within.family and within.first <= tested.first and tested.last <= within.last
        ):
            raise Invalid(path, f"range [{tested.text}] must be a strict subset of the subnet {within.text}")
        place = bisect.bisect(seen, (tested.family, tested.last, len(spans)))
        over = _overlapping(tested, spans, seen, place)
        if over:
            raise Invalid(path, f"range [{tested.text}] overlaps with range [{spans[min(over)].text}]")
        seen.insert(place, (tested.family, tested.first, index))


def _overlapping(
    tested: Span, spans: Sequence[Span], seen: Sequence[tuple[int, int, int]], place: int
) -> list[int]:
    over: list[int] = []
    while place and tested.overlaps(spans[seen[place - 1][2]]):
        place -= 1
        over.append(seen[place][2])
    return over


class TakenRanges:
    """Ranges of other objects, indexed for quick search; they may overlap each other."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = tuple(spans)
        ordered = sorted((span.family, span.first, span.last) for span in self._spans)
        self._firsts = [(family, first) for family, first, _ in ordered]
        self._reach = list(itertools.accumulate(((family, last) for family, _, last in ordered), max))
        """For each place in the order, the maximum end of the ranges up to there."""

    def first_over(self, tested: Span) -> int | None:
        """Return the index of the first given range that overlaps `span`."""
        place = bisect.bisect(self._firsts, (tested.family, tested.last))
        if not place or self._reach[place - 1] < (tested.family, tested.first):
            return None
        return next(number for number, span in enumerate(self._spans) if tested.overlaps(span))


def check_kept(old: Iterable[Span], new: Iterable[Span]) -> None:
    """Check that no existing range was removed or rewritten. Raises Invalid."""
    gone = sorted({span.text for span in old} - {span.text for span in new})
    if gone:
        raise Invalid("spec.ipRanges", f"existing IPRanges [{' '.join(gone)}] cannot be updated or deleted")


def _address(text: str, path: str, which: str) -> Address:
    try:
        return ip_address(text)
    except ValueError as error:
        raise Invalid(path, f"invalid {which} ip address {text}") from error
