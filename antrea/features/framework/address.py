"""Addresses as users and other programs write them."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antrea.features.framework.ip_range import Address


_ZEROS = re.compile(r"(?<![0-9a-fA-F])0+(?=[0-9]+(?:\.|$))")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")


def read(text: str) -> Address | None:
    """One address, an IPv4 address in IPv6 form as what it is; None if it is none, or has a zone, which may be any text."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if "%" in text:
        return None
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


def canonical(text: str) -> str:
    """The one way to write it, so that equal addresses are equal texts; empty if it is none."""
    if _IPV4.fullmatch(text):
        return text  # ten times as fast as ip_address, for most of 50,000 Endpoints
    found = read(text)
    return "" if found is None else str(found)


def stored(text: str) -> str:
    """As `canonical`, of addresses that the API has: numbers of IPv4 that begin with 0 are decimal, as old objects may have them.

    parity: k8s.io/utils/net ParseIPSloppy, by which kube-apiserver and kube-proxy read Services and EndpointSlices
    """
    return canonical(text) or (canonical(_ZEROS.sub("", text)) if "." in text else "")
