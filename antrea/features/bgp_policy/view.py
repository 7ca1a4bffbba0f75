"""Answers of the agent's API on the BGPPolicy in effect, its peers and its routes, in upstream's form.

parity: pkg/agent/apis/types.go BGPPolicyResponse, BGPPeerResponse, BGPRouteResponse; pkg/agent/apiserver/handlers/bgp*
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.features.bgp_policy.advertisement import AdvertisedPrefix
from antrea.features.bgp_policy.policy import EffectivePolicy
from antrea.features.bgp_policy.route_type import TYPES
from antrea.features.bgp_policy.router_id import router_id
from antrea.features.bgp_policy.state import UNKNOWN, BfdPeerState, BgpPeerState
from antrea.features.framework.address import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Facts


class NoPolicy(Exception):
    """No BGPPolicy selects this Node."""


NONE = "there is no effective bgp policy applied to the Node"
"""Upstream's words."""
NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
IPV4_ONLY, IPV6_ONLY, TYPE = "ipv4-only", "ipv6-only", "type"


def shown_policy(facts: Facts) -> dict[str, Any]:
    """The policy that this Node follows. Raises NoPolicy."""
    effective, node = _effective(facts), facts.need(ThisNode)
    policy = effective.policy
    shown: dict[str, Any] = {
        "name": policy.name,
        "routerID": router_id(facts, node),
        "localASN": policy.asn,
        "listenPort": policy.listen_port,
    }
    if policy.confederation:
        shown |= {"confederationIdentifier": policy.confederation, "memberASNs": [*policy.members]}
    return shown


def shown_peers(facts: Facts, query: Mapping[str, str] = NO_QUERY) -> list[dict[str, Any]]:
    """The BGP peers of the policy, by family and address. Raises NoPolicy, Invalid."""
    families = _families(query)
    rows = [
        (canonical(peer.address), peer)
        for peer in _effective(facts).policy.peers
        if canonical(peer.address) and is_ipv6(peer.address) in families
    ]
    rows.sort(key=lambda row: (is_ipv6(row[0]), int(ip_address(row[0])), row[1].port))
    return [_peer(facts, address, peer.port, peer.asn) for address, peer in rows]


def _peer(facts: Facts, address: str, port: int, asn: int) -> dict[str, Any]:
    row, bfd = facts.get(BgpPeerState, address), facts.get(BfdPeerState, address)
    shown: dict[str, Any] = {
        "peer": f"[{address}]:{port}" if is_ipv6(address) else f"{address}:{port}",
        "asn": asn,
        "state": row.state if row else UNKNOWN,
    }
    if row and row.error:
        shown["lastError"] = row.error
    if bfd:
        shown["bfd"] = "Up" if bfd.up else "Down"
    return shown


def shown_routes(facts: Facts, query: Mapping[str, str] = NO_QUERY) -> list[dict[str, Any]]:
    """The networks that this Node advertises, each with what it is for. Raises NoPolicy, Invalid."""
    _effective(facts)
    families, wanted = _families(query), query.get(TYPE, "")
    if wanted and wanted not in TYPES:
        raise Invalid(TYPE, f"{wanted!r} is none of {', '.join(TYPES)}")
    networks = [
        (ip_network(row.prefix), row)
        for row in facts.all(AdvertisedPrefix)
        if is_ipv6(row.prefix) in families and wanted in ("", row.type)
    ]
    networks.sort(
        key=lambda pair: (pair[0].version, pair[1].type, pair[0].prefixlen, int(pair[0].network_address))
    )
    return [_route(row) for _, row in networks]


def _route(row: AdvertisedPrefix) -> dict[str, str]:
    shown = {"route": row.prefix, "type": row.type}
    return {**shown, "k8sObjRef": row.object} if row.object else shown


def _effective(facts: Facts) -> EffectivePolicy:
    effective = facts.get(EffectivePolicy)
    if effective is None:
        raise NoPolicy(NONE)
    return effective


def _families(query: Mapping[str, str]) -> frozenset[bool]:
    """Return the families that are asked for; True is IPv6. Raises Invalid."""
    only4, only6 = IPV4_ONLY in query, IPV6_ONLY in query
    if only4 and only6:
        raise Invalid("query", f"{IPV4_ONLY} and {IPV6_ONLY} exclude each other")
    return frozenset({False} if only4 else {True} if only6 else {False, True})
