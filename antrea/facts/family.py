"""IPv4 and IPv6: which family an address or a CIDR is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_ipv6(address: str) -> bool:
    """Whether an address or a CIDR is one of IPv6."""
    return ":" in address


def one_per_family(addresses: Iterable[str]) -> tuple[str, ...]:
    """The first address or CIDR of each family, IPv4 first."""
    first: dict[bool, str] = {}
    for address in addresses:
        first.setdefault(is_ipv6(address), address)
    return tuple(first[family] for family in (False, True) if family in first)
