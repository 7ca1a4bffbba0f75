"""The source of a connection: what one host has whole."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(4096)
def network(address: str) -> str:
    """Return the IPv4 address, or the /64 of an IPv6 address; a text that is not an address stays as it is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
