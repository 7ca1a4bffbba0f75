"""Entries for connections that began before proxyAll was turned on or off: they continue with the proxy that began to translate
them.

Turned off: routes into the switch for the addresses of such connections; new ones are translated by kube-proxy before the host
looks for a route. To external addresses the host neither tracks packets of these connections, nor do rules of kube-proxy see
them. Turned on: the host continues to track those to external addresses that kube-proxy's rules translate. Upstream ends them
all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import EarlierConnection, Service, ServicePort
from antrea.features.proxy.host import (
    EARLIER,
    NODE_PORT_IPS,
    connection_ends,
    proxies_all,
    service_route,
    virtual_routes,
)
from antrea.host.nft import NftElement, NftRule, NftSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.host.route import Neighbour, Route


def earlier_host_entries(facts: Facts, node: ThisNode) -> Iterator[NftSet | NftRule | Route | Neighbour]:
    """Yield what all of them have in common, in families with any."""
    config = facts.get(AgentConfig)
    if config is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    for ipv6 in sorted(node.families):
        if not facts.by(EarlierConnection, "ipv6", ipv6):
            continue
        address = "ipv6_addr" if ipv6 else "ipv4_addr"
        end = f"{address} . inet_service"
        yield NftSet(name=EARLIER[ipv6], type=f"inet_proto . {end} . {end}")
        if proxies_all(facts) is None:
            yield from virtual_routes(facts, node, config, ipv6=ipv6)
            yield from untracked_rules(ipv6=ipv6)


def untracked_rules(*, ipv6: bool) -> Iterator[NftRule]:
    """Yield rules for both directions of connections to external addresses that only the switch tracks."""
    family = "ip6" if ipv6 else "ip"
    for chain, back in (("prerouting-raw", False), ("prerouting-raw", True), ("output-raw", False)):
        text = f"{connection_ends(ipv6=ipv6, back=back)} @{EARLIER[ipv6]} notrack"
        name = f"{'from' if back else 'to'} external IPs, earlier, {family}"
        yield NftRule(chain=chain, name=name, text=text)


def earlier_connection(facts: Facts, row: EarlierConnection) -> Iterator[Route | NftElement]:
    """Yield the path of one connection."""
    config, node = facts.get(AgentConfig), facts.get(ThisNode)
    if config is None or node is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    if is_ipv6(row.ip) not in node.families or row.by_switch == (proxies_all(facts) is not None):
        return
    if row.by_switch:
        yield service_route(config, row.ip)
    if is_external(facts, row):
        ends = f"{row.source} . {row.source_port} . {row.ip} . {row.port}"
        yield NftElement(set=EARLIER[is_ipv6(row.ip)], value=f"{row.protocol} . {ends}")


def is_external(facts: Facts, row: EarlierConnection) -> bool:
    """Whether it goes to an address that the host does not track with proxyAll."""
    if row.by_switch:
        return row.ip not in NODE_PORT_IPS and not facts.by(Service, "cluster_ip", row.ip)
    return bool(facts.by(ServicePort, "external", (row.ip, row.protocol.upper(), row.port)))
