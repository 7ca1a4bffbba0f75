"""Addresses that follow from a Node's Pod CIDR: its gateway has the first."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@lru_cache(16384)
def gateway_ip(pod_cidr: str) -> str:
    """The gateway's address in `pod_cidr`, without a prefix length: 10.10.0.0/24 -> 10.10.0.1.

    Raises ValueError on text that is not a network.
    """
    return str(ip_network(pod_cidr)[1])


def gateway_address(pod_cidr: str) -> str:
    """The gateway's address with the prefix length of the Pod CIDR: 10.10.0.0/24 -> 10.10.0.1/24."""
    return f"{gateway_ip(pod_cidr)}/{ip_network(pod_cidr).prefixlen}"


def held(address: str, pod_cidrs: Iterable[str]) -> bool:
    """Whether one of these CIDRs has the address."""
    return any(ip_address(address) in ip_network(cidr) for cidr in pod_cidrs)
