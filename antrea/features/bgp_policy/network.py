"""Networks that filters of a router's session name: what it is sent, and what is taken from it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network, summarize_address_range
from typing import TYPE_CHECKING, Final

from antrea.apis.crd.pool import ExternalIPPool
from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.features.framework.admission import Watched
from antrea.features.framework.ip_range import prefix, span
from antrea.host.bgp import BgpImports

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.apis.crd.bgp import BgpPeer, RouteImport
    from antrea.engine import Facts

POOLS = "/apis/crd.antrea.io/v1beta1/externalippools"
MAX_TEXT, MAX_NETWORKS = 60, 512
"""Characters of a network in a message, and networks of one filter."""


class PoolNetworks(Fact, frozen=True):
    """The networks that the ranges of an ExternalIPPool consist of; the feed of ExternalIPPools writes it."""

    pool: str
    networks: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.pool


def pool_networks(stored: ExternalIPPool) -> PoolNetworks:
    """Make the row of a pool; a range that is invalid has no network."""
    networks: list[str] = []
    for row in stored.spec.ip_ranges:
        try:
            addresses = span(row.cidr, row.start, row.end, "")
        except Invalid:
            continue
        kind = type(ip_address("::" if addresses.family == 6 else "0.0.0.0"))  # noqa: S104 (a family)
        networks += map(str, summarize_address_range(kind(addresses.first), kind(addresses.last)))
    return PoolNetworks(stored.metadata.name, tuple(networks[:MAX_NETWORKS]))


def parsed_networks(texts: Iterable[str]) -> tuple[str, ...]:
    """Parse networks such as 192.0.2.0/24, sorted. Raises ValueError for one that is none, or that is all addresses."""
    networks = set()
    for text in texts:
        try:
            network = prefix(text).network
        except ValueError:
            raise ValueError(f"{text[:MAX_TEXT]!r} is not a network such as 192.0.2.0/24") from None
        if not network.prefixlen:
            raise ValueError(f"{text[:MAX_TEXT]!r} is all addresses")
        networks.add(str(network))
    return tuple(sorted(networks))


def sent_networks(facts: Facts, peer: BgpPeer, address: str) -> tuple[str, ...] | None:
    """Return within which networks of its family the peer is sent routes; None: it is sent all. Raises ValueError."""
    if not (peer.advertised_networks or peer.external_ip_pools):
        return None
    networks = {*parsed_networks(peer.advertised_networks)}
    for name in peer.external_ip_pools:
        pool = facts.get(PoolNetworks, name)
        networks.update(pool.networks if pool else ())
    return _of_family(networks, address)


def missing_pools(facts: Facts, peer: BgpPeer) -> list[str]:
    """Return the pools that the peer names and that do not exist."""
    return [name for name in peer.external_ip_pools if facts.get(PoolNetworks, name) is None]


def imports_of(wanted: RouteImport | None, address: str) -> BgpImports | None:
    """Return what is taken from a router; None: nothing. Raises ValueError."""
    if wanted is None:
        return None
    networks = _of_family(parsed_networks(wanted.networks), address)
    if not networks and not wanted.default_route:
        return None
    return BgpImports(networks, default_route=wanted.default_route, maximum=wanted.maximum_routes)


def _of_family(networks: Iterable[str], address: str) -> tuple[str, ...]:
    parsed = {ip_network(network) for network in networks if is_ipv6(network) == is_ipv6(address)}
    return tuple(map(str, sorted(parsed, key=lambda row: (int(row.network_address), row.prefixlen))))


WATCHED: Final = Watched(POOLS, ExternalIPPool, PoolNetworks, pool_networks)
