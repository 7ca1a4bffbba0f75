"""Rows of Services and their Endpoints, from objects of the API.

parity: third_party/proxy/{service,endpointslicecache}.go, pkg/agent/proxy/proxier.go shouldSkipService
"""

from __future__ import annotations

from ipaddress import ip_network
from sys import intern
from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.apis.annotation import CONSISTENT_CHOICE, LOAD_BALANCER_MODE
from antrea.apis.discovery import EndpointSlice
from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.service import (
    DRAINING,
    READY,
    UNAVAILABLE,
    Service,
    ServiceEndpoint,
    ServicePort,
)
from antrea.features.framework.address import stored
from antrea.features.framework.admission import Watched
from antrea.features.framework.ip_range import unusable, unusable_network
from antrea.features.framework.service_pool import TRUE, failback_of, pools_of, preferred_of
from antrea.features.proxy.direct_path import is_possible
from antrea.features.proxy.dsr import DSR
from antrea.features.proxy.external_address import owner_of
from antrea.features.proxy.own_address import local_address_of, served_ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.discovery import NamedHint
    from antrea.config.agent_sections import AntreaProxy
    from antrea.engine import Facts

EXTERNAL_NAME, HEADLESS, PROXY = "ExternalName", "None", "Proxy"
LOAD_BALANCER = "LoadBalancer"
LOCAL, CLIENT_IP = "Local", "ClientIP"
DEFAULT_AFFINITY_SECONDS = 10800
"""Default of the API, where a Service names none."""
SERVICE_LABEL = "kubernetes.io/service-name"
PROXY_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"
"""Label of a Service that no proxy serves, whatever its value (k8s.io/api/core/v1 IsHeadlessService)."""
NAT = "nat"
PORTS = range(1, 65536)
MAX_REFUSED, MAX_TEXT = 10, 60
"""Maximum number of sentences about one Service, and of characters of its author's text in one."""
STATES = (READY, DRAINING, UNAVAILABLE)
"""States of Endpoints, the best first."""


def service_row(service: core.Service) -> Service | None:
    """Make the row of a Service; None if it is only reached by its Endpoints' addresses, or by another name."""
    meta, spec = service.metadata, service.spec
    if spec.type == EXTERNAL_NAME or not spec.cluster_ips or HEADLESS in spec.cluster_ips:
        return None
    if HEADLESS_LABEL in meta.labels:
        return None
    refused: list[str] = []
    balanced = (ingress.ip for ingress in service.status.load_balancer.ingress if ingress.ip_mode != PROXY)
    cluster_ips = dict.fromkeys(ip for text in spec.cluster_ips if (ip := stored(text)))
    given = dict.fromkeys(_usable(balanced, "status.loadBalancer.ingress", refused))
    external = dict.fromkeys(_usable(spec.external_ips, "spec.externalIPs", refused)) | given
    ports = [port for port in spec.ports if port.port in PORTS]
    affinity = spec.session_affinity_config.client_ip.timeout_seconds or DEFAULT_AFFINITY_SECONDS
    return Service(
        meta.namespace,
        meta.name,
        tuple(cluster_ips | external),
        tuple((port.protocol, port.port) for port in ports),
        external_ips=tuple(ip for ip in external if ip not in cluster_ips),
        port_names=tuple(port.name for port in ports),
        node_ports=tuple(port.node_port for port in ports),
        affinity_seconds=affinity if spec.session_affinity == CLIENT_IP else 0,
        internal_local=spec.internal_traffic_policy == LOCAL,
        external_local=spec.external_traffic_policy == LOCAL,
        proxy_name=meta.labels.get(PROXY_LABEL, ""),
        load_balancer_ips=tuple(ip for ip in given if ip not in cluster_ips),
        source_ranges=tuple(_source_range(text, refused) for text in spec.load_balancer_source_ranges),
        mode=_mode(meta.annotations.get(LOAD_BALANCER_MODE, "")),
        health_port=_health_port(spec),
        created=meta.creation_timestamp,
        uid=meta.uid,
        pools=pools_of(service),
        preferred=preferred_of(service),
        failback=failback_of(service),
        consistent=meta.annotations.get(CONSISTENT_CHOICE, "") in TRUE,
        refused=tuple(refused[:MAX_REFUSED]),
    )


def _usable(texts: Iterable[str], field: str, refused: list[str]) -> Iterator[str]:
    """Addresses of a field at which a Service can be reached from outside; `refused` gets a sentence for each other one."""
    for text in texts:
        if not (ip := stored(text)):
            continue  # a load balancer may have a host name alone
        if kind := unusable(ip):
            refused.append(f"{field}: {ip} is one of {kind}: it is not served")
        else:
            yield ip


def _source_range(text: str, refused: list[str]) -> str:
    """Return the network; empty if no sender has an address of it."""
    if not (network := _network(text)):
        refused.append(
            f"spec.loadBalancerSourceRanges: {text[:MAX_TEXT]!r} is not a network: it allows no client"
        )
    elif kind := unusable_network(network, neighbours=True):
        refused.append(
            f"spec.loadBalancerSourceRanges: {network} has nothing but {kind}: it allows no client"
        )
        return ""
    return network


def _mode(text: str) -> str:
    mode = text.strip().lower()
    return mode if mode in (NAT, DSR) else ""


def _health_port(spec: core.ServiceSpec) -> int:
    is_requested = spec.type == LOAD_BALANCER and spec.external_traffic_policy == LOCAL
    return spec.health_check_node_port if is_requested and spec.health_check_node_port in PORTS else 0


def _network(text: str) -> str:
    """Parse a network; empty if it is invalid."""
    address, slash, length = text.strip().partition("/")
    try:
        return str(ip_network(f"{stored(address)}{slash}{length}", strict=False))
    except ValueError:
        return ""


def endpoint_rows(endpoint_slice: EndpointSlice) -> tuple[ServiceEndpoint, ...]:
    """A row for each port and endpoint; addresses that cannot be read and ports without a number have none.

    Of a slice without ports the rows only have where Endpoints are.
    """
    meta = endpoint_slice.metadata
    service = meta.labels.get(SERVICE_LABEL, "")
    if not service:
        return ()
    key, of = f"{meta.namespace}/{meta.name}", f"{meta.namespace}/{service}"
    ports = _ports(endpoint_slice)
    rows = tuple(
        ServiceEndpoint(
            key,
            of,
            name,
            protocol,
            address,
            number,
            intern(endpoint.node_name or ""),
            endpoint.conditions.is_ready,
            endpoint.conditions.is_serving,
            endpoint.conditions.terminating is True,
            _names(endpoint.hints.for_zones if endpoint.hints else ()),
            _names(endpoint.hints.for_nodes if endpoint.hints else ()),
        )
        for name, protocol, number in ports
        for endpoint in endpoint_slice.endpoints or ()
        if endpoint.addresses and (address := stored(endpoint.addresses[0]))
    )
    return rows if len({row.ip for row in rows}) * len(ports) == len(rows) else _best(rows)


def _best(rows: Iterable[ServiceEndpoint]) -> tuple[ServiceEndpoint, ...]:
    """Choose one for each address: Pods that have their Node's may take over from each other."""
    best: dict[tuple[str, str], ServiceEndpoint] = {}
    for row in rows:
        place = (row.key, row.address)
        if (other := best.get(place)) is None or STATES.index(row.state) < STATES.index(other.state):
            best[place] = row
    return tuple(best.values())


def _ports(endpoint_slice: EndpointSlice) -> list[tuple[str, str, int]]:
    """Return name, protocol and number of each port."""
    ports = endpoint_slice.ports or ()
    if not ports:
        return [("", "", 0)]
    return [
        (port.name or "", port.protocol or "TCP", port.port)
        for port in ports
        if port.port in PORTS and port.port is not None
    ]


def _names(hints: Iterable[NamedHint] | None) -> tuple[str, ...]:
    return tuple(sorted({hint.name for hint in hints or () if hint.name}))


SERVICE_WATCH = Watched("/api/v1/services", core.Service, Service, service_row)
ENDPOINT_SLICE_WATCH = Watched(
    "/apis/discovery.k8s.io/v1/endpointslices", EndpointSlice, ServiceEndpoint, endpoint_rows
)


def service_ports(facts: Facts, service: Service) -> Iterator[ServicePort]:
    """Yield the ports of a Service that this agent serves, with the addresses that it serves them at."""
    config = facts.get(AgentConfig)
    if config is None or service.proxy_name != config.antrea_proxy.service_proxy_name:
        return
    proxy = config.antrea_proxy
    if {service.key, *service.ips} & set(proxy.skip_services):
        return
    wanted = tuple(wanted_externally(service, proxy))
    own_ips = tuple(ip for ip in wanted if local_address_of(facts, ip))
    external = tuple(ip for ip in wanted if ip not in own_ips and not owner_of(facts, ip))
    is_dsr = (service.mode or proxy.default_load_balancer_mode) == DSR
    direct = is_dsr and is_possible(facts)
    ports = zip(service.ports, service.port_names, service.node_ports, strict=False)
    for (protocol, port), name, node_port in ports:
        yield ServicePort(
            service.key,
            name,
            protocol,
            port,
            service.cluster_ips,
            external,
            node_port if proxy.proxy_all else 0,
            service.affinity_seconds,
            service.internal_local,
            service.external_local,
            tuple(ip for ip in (*external, *own_ips) if ip in service.load_balancer_ips)
            if service.source_ranges
            else (),
            service.source_ranges,
            service.created,
            direct and bool(external or (node_port and proxy.proxy_all)),
            service.consistent,
            tuple(served_ports(facts, service, own_ips, protocol, port)),
        )


def wanted_externally(service: Service, proxy: AntreaProxy) -> Iterator[str]:
    """Yield external addresses that the Service requests; without proxyAll those of load balancers, for Pods."""
    families = {is_ipv6(ip) for ip in service.cluster_ips}
    for ip in service.external_ips:
        balanced = ip in service.load_balancer_ips and proxy.proxy_load_balancer_ips
        is_proxied = proxy.proxy_all and (balanced or ip not in service.load_balancer_ips)
        if (balanced or is_proxied) and is_ipv6(ip) in families:
            yield ip
