"""Address ranges of pools: what a range is, whether ranges overlap, and where one must lie.

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
NOBODYS: Final = tuple(
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
"""Addresses with which no Node can send to outside, and at which none can be reached from there.

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


NOBODYS_SPANS: Final = tuple(
    (what, Span("", network.version, int(network[0]), int(network[-1]))) for what, network in NOBODYS
)


def alone(address: Address) -> Span:
    """The range of one address."""
    return Span(str(address), address.version, int(address), int(address))


def nobodys(one: Span) -> str:
    """Which of its addresses are of no use outside; empty: none."""
    what = next((what for what, span in NOBODYS_SPANS if one.overlaps(span)), "")
    return what and f"{what}, with which no Node can send"


@lru_cache(1024)
def unusable(ip: str) -> str:
    """The kind of an address, in its canonical form, that no Node, Service or router has outside; empty: one that they can have."""
    one = alone(ip_address(ip))
    return next((what for what, span in NOBODYS_SPANS if one.overlaps(span)), "")


def usable(text: str) -> str:
    """The canonical form of an address that a Node can send with; empty: it is none, or one of another kind."""
    ip = canonical(text)
    return "" if not ip or unusable(ip) else ip


@lru_cache(1024)
def unusable_network(cidr: str, *, neighbours: bool = False) -> str:
    """The kind of a network that has only unusable addresses; `neighbours`: link-local ones are usable, as sources of packets."""
    found = ip_network(cidr, strict=False)
    one = Span(cidr, found.version, int(found[0]), int(found[-1]))
    return next(
        (
            what
            for what, span in NOBODYS_SPANS
            if not (neighbours and what.startswith("link-local"))
            and one.family == span.family
            and span.first <= one.first
            and one.last <= span.last
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
    """Every range in `within`, none over another of the same pool. Raises Invalid."""
    seen: list[
        tuple[int, int, int]
    ] = []  # family, first address and index of ranges so far, none over another
    for index, one in enumerate(spans):
        path = f"spec.ipRanges[{index}]"
        if within and not (
            one.family == within.family and within.first <= one.first and one.last <= within.last
        ):
            raise Invalid(path, f"range [{one.text}] must be a strict subset of the subnet {within.text}")
        place = bisect.bisect(seen, (one.family, one.last, len(spans)))
        over = _overlapping(one, spans, seen, place)
        if over:
            raise Invalid(path, f"range [{one.text}] overlaps with range [{spans[min(over)].text}]")
        seen.insert(place, (one.family, one.first, index))


def _overlapping(
    one: Span, spans: Sequence[Span], seen: Sequence[tuple[int, int, int]], place: int
) -> list[int]:
    over: list[int] = []
    while place and one.overlaps(spans[seen[place - 1][2]]):
        place -= 1
        over.append(seen[place][2])
    return over


class TakenRanges:
    """Ranges that others have, found without looking at each of them; they may overlap with each other."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = tuple(spans)
        ordered = sorted((span.family, span.first, span.last) for span in self._spans)
        self._firsts = [(family, first) for family, first, _ in ordered]
        self._reach = list(itertools.accumulate(((family, last) for family, _, last in ordered), max))
        """By place in the order: how far the ranges up to there reach."""

    def first_over(self, one: Span) -> int | None:
        """The place, among those given, of the first range that overlaps with `one`."""
        place = bisect.bisect(self._firsts, (one.family, one.last))
        if not place or self._reach[place - 1] < (one.family, one.first):
            return None
        return next(number for number, span in enumerate(self._spans) if one.overlaps(span))


def check_kept(old: Iterable[Span], new: Iterable[Span]) -> None:
    """No range that was there is gone or written otherwise. Raises Invalid."""
    gone = sorted({span.text for span in old} - {span.text for span in new})
    if gone:
        raise Invalid("spec.ipRanges", f"existing IPRanges [{' '.join(gone)}] cannot be updated or deleted")


def _address(text: str, path: str, which: str) -> Address:
    try:
        return ip_address(text)
    except ValueError as error:
        raise Invalid(path, f"invalid {which} ip address {text}") from error
