"""Routes that this Node takes from routers, in its main routing table: opt-in, filtered, and never towards the cluster's own."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from antrea.facts.fact import Fact
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress
from antrea.features.framework.address import canonical
from antrea.host.route import Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

METRIC: Final = 20
"""After routes of the Node's own, whose metric is 0, as administrative distance 20 of eBGP."""
MAX_ROUTES: Final = 10_000
"""Routes of one router that are read."""


class ImportedRoute(Fact, frozen=True):
    """A route of a router that passed its filter; the part writes it."""

    network: str
    via: str

    @property
    def key(self) -> str:
        return self.network


class RefusedRoute(Fact, frozen=True):
    """A route of a router that is not installed; derived."""

    network: str
    why: str

    @property
    def key(self) -> str:
        return self.network


def imported_routes(answer: Any) -> dict[str, str]:
    """Read `show bgp ... neighbors ... routes json`: next hops by network; what is of another form is left out."""
    routes = answer.get("routes") if isinstance(answer, dict) else None
    if not isinstance(routes, dict):
        return {}
    result = {}
    for network, paths in list(routes.items())[:MAX_ROUTES]:
        for path in paths if isinstance(paths, list) else ():
            if isinstance(path, dict) and path.get("bestpath") and (via := _next_hop(path)):
                try:
                    result[str(ip_network(network))] = via
                except ValueError:
                    continue
    return result


def _next_hop(path: dict[str, Any]) -> str:
    """Return the address of the next hop, for IPv6 the one that is not of the link alone."""
    hops = path.get("nexthops")
    for hop in hops if isinstance(hops, list) else ():
        ip = canonical(str(hop.get("ip", ""))) if isinstance(hop, dict) else ""
        if ip and not ip_address(ip).is_link_local and not ip_address(ip).is_unspecified:
            return ip
    return ""


def why_not_installed(facts: Facts, row: ImportedRoute) -> str:
    """Return why a route is not installed: it would lead packets to the Nodes' own network or to Pods elsewhere; empty if it is."""
    network = ip_network(row.network)
    for local in facts.all(LocalAddress):
        here = ip_network(f"{local.ip}/{local.prefix}", strict=False)
        if here.version == network.version and network.subnet_of(here):  # type: ignore[arg-type]
            return f"{row.network} is within {here}, a network of this Node"
    for length in range(1, network.prefixlen + 1):
        around = str(network.supernet(new_prefix=length))
        for node in facts.by(AgentNode, "pod_cidr", around):
            return f"{row.network} is within {around}, the Pods of Node {node.name}"
    return ""


def imported_route(facts: Facts, row: ImportedRoute) -> Iterator[Route | RefusedRoute]:
    """Yield the route, or why it is not installed."""
    if why := why_not_installed(facts, row):
        yield RefusedRoute(row.network, why)
    else:
        yield Route(dst=row.network, dev="", via=row.via, metric=METRIC)
