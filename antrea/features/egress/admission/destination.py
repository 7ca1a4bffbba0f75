"""What outside an Egress is for, as its author writes it: a field of our own."""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING

from antrea.errors import Invalid
from antrea.facts.family import is_ipv6
from antrea.features.framework.admission import Warn
from antrea.features.framework.ip_range import prefix

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Network, IPv6Network

    from antrea.apis.crd.egress import Destinations
    from antrea.features.framework.admission import Steps

    Network = IPv4Network | IPv6Network

EVERYTHING = {4: "0.0.0.0/0", 6: "::/0"}


def check_destinations(wanted: Destinations, address: str) -> Steps:
    """Raises Invalid; warns of what changes nothing, or leaves nothing."""
    found: dict[str, list[Network]] = {"cidrs": [], "except": []}
    for field, cidrs in (("cidrs", wanted.cidrs), ("except", wanted.except_)):
        for number, cidr in enumerate(cidrs):
            path = f"spec.destinations.{field}[{number}]"
            try:
                one = prefix(cidr)
            except ValueError as error:
                raise Invalid(path, f"invalid cidr {cidr}") from error
            found[field].append(one.network)
            if one.ip != one.network.network_address:
                yield Warn(f"{path}: {cidr} counts as {one.network}")
            if address and is_ipv6(address) != is_ipv6(cidr):
                yield Warn(f"{path}: {one.network} is not of the family of {address}, it changes nothing")
    if wanted.cidrs and address and all(is_ipv6(cidr) != is_ipv6(address) for cidr in wanted.cidrs):
        yield Warn(f"spec.destinations.cidrs: none is of the family of {address}, so nothing leaves with it")
    if _leaves_nothing(found["cidrs"], found["except"], address):
        yield Warn("spec.destinations.except: leaves nothing that the Egress is for")


def _leaves_nothing(cidrs: Iterable[Network], holes: Iterable[Network], address: str) -> bool:
    """Whether each of the networks lies in one of the holes."""
    families = (6 if is_ipv6(address) else 4,) if address else (4, 6)
    wide = [ip_interface(EVERYTHING[family]).network for family in families]
    inside = [one for one in cidrs or wide if one.version in families]
    return bool(inside) and all(any(_in(one, hole) for hole in holes) for one in inside)


def _in(one: Network, hole: Network) -> bool:
    same = one.version == hole.version
    return same and one.prefixlen >= hole.prefixlen and one.network_address in hole
