"""Validation of the destinations outside the cluster that an Egress is for, a field beyond upstream's."""

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
    """Check the destinations. Raises Invalid; warns of entries that change nothing, or leave nothing."""
    networks: dict[str, list[Network]] = {"cidrs": [], "except": []}
    for field, cidrs in (("cidrs", wanted.cidrs), ("except", wanted.except_)):
        for number, cidr in enumerate(cidrs):
            path = f"spec.destinations.{field}[{number}]"
            try:
                network = prefix(cidr)
            except ValueError as error:
                raise Invalid(path, f"invalid cidr {cidr}") from error
            networks[field].append(network.network)
            if network.ip != network.network.network_address:
                yield Warn(f"{path}: {cidr} counts as {network.network}")
            if address and is_ipv6(address) != is_ipv6(cidr):
                yield Warn(f"{path}: {network.network} is not of the family of {address}, it changes nothing")
    if wanted.cidrs and address and all(is_ipv6(cidr) != is_ipv6(address) for cidr in wanted.cidrs):
        yield Warn(f"spec.destinations.cidrs: none is of the family of {address}, so nothing leaves with it")
    if _leaves_nothing(networks["cidrs"], networks["except"], address):
        yield Warn("spec.destinations.except: leaves nothing that the Egress is for")


def _leaves_nothing(cidrs: Iterable[Network], holes: Iterable[Network], address: str) -> bool:
    """Whether each of the networks is in one of the exceptions."""
    families = (6 if is_ipv6(address) else 4,) if address else (4, 6)
    wide = [ip_interface(EVERYTHING[family]).network for family in families]
    inside = [network for network in cidrs or wide if network.version in families]
    return bool(inside) and all(any(_in(network, hole) for hole in holes) for network in inside)


def _in(network: Network, hole: Network) -> bool:
    same = network.version == hole.version
    return same and network.prefixlen >= hole.prefixlen and network.network_address in hole
