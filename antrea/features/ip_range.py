"""Address ranges of pools: what a range is, whether ranges overlap, and where one must lie.

parity: pkg/controller/validation/ippool.go
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Address = IPv4Address | IPv6Address


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


def span(cidr: str, start: str, end: str, path: str) -> Span:
    """The range that a CIDR, or else a start and an end, say. Raises Invalid below `path`."""
    if cidr:
        try:
            network = ip_network(cidr, strict=False)
        except ValueError as why:
            raise Invalid(f"{path}.cidr", f"invalid cidr {cidr}") from why
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
    except ValueError as why:
        raise Invalid(f"{path}.gateway", f"invalid gateway address {gateway}") from why
    if not 0 < prefix_length < (32 if version == 4 else 128):
        raise Invalid(f"{path}.prefixLength", f"invalid prefixLength {prefix_length}")
    network = ip_interface(f"{gateway}/{prefix_length}").network
    return Span(f"{gateway}/{prefix_length}", version, int(network[0]), int(network[-1]))


def check_inside(spans: Sequence[Span], within: Span | None) -> None:
    """Every range in `within`, none over another of the same pool. Raises Invalid."""
    for index, one in enumerate(spans):
        path = f"spec.ipRanges[{index}]"
        if within and not (
            one.family == within.family and within.first <= one.first and one.last <= within.last
        ):
            raise Invalid(path, f"range [{one.text}] must be a strict subset of the subnet {within.text}")
        for other in spans[:index]:
            if one.overlaps(other):
                raise Invalid(path, f"range [{one.text}] overlaps with range [{other.text}]")


def check_kept(old: Iterable[Span], new: Iterable[Span]) -> None:
    """No range that was there is gone or written otherwise. Raises Invalid."""
    gone = sorted({span.text for span in old} - {span.text for span in new})
    if gone:
        raise Invalid("spec.ipRanges", f"existing IPRanges [{' '.join(gone)}] cannot be updated or deleted")


def _address(text: str, path: str, which: str) -> Address:
    try:
        return ip_address(text)
    except ValueError as why:
        raise Invalid(path, f"invalid {which} ip address {text}") from why
