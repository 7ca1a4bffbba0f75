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
from antrea.features.proxy.external_address import whose
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
"""Of the API, where a Service names none."""
SERVICE_LABEL = "kubernetes.io/service-name"
PROXY_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"
"""On a Service that no proxy serves, whatever its value (k8s.io/api/core/v1 IsHeadlessService)."""
NAT = "nat"
PORTS = range(1, 65536)
MAX_REFUSED, MAX_TEXT = 10, 60
"""Sentences about one Service, and characters of a text of its author in one."""
STATES = (READY, DRAINING, UNAVAILABLE)
"""Of Endpoints, the best first."""


def service_row(found: core.Service) -> Service | None:
    """None for one that is reached by the addresses of its Endpoints alone, or by the name of something else."""
    meta, spec = found.metadata, found.spec
    if spec.type == EXTERNAL_NAME or not spec.cluster_ips or HEADLESS in spec.cluster_ips:
        return None
    if HEADLESS_LABEL in meta.labels:
        return None
    refused: list[str] = []
    balanced = (one.ip for one in found.status.load_balancer.ingress if one.ip_mode != PROXY)
    own = dict.fromkeys(ip for text in spec.cluster_ips if (ip := stored(text)))
    given = dict.fromkeys(_usable(balanced, "status.loadBalancer.ingress", refused))
    external = dict.fromkeys(_usable(spec.external_ips, "spec.externalIPs", refused)) | given
    ports = [one for one in spec.ports if one.port in PORTS]
    affinity = spec.session_affinity_config.client_ip.timeout_seconds or DEFAULT_AFFINITY_SECONDS
    return Service(
        meta.namespace,
        meta.name,
        tuple(own | external),
        tuple((one.protocol, one.port) for one in ports),
        external_ips=tuple(ip for ip in external if ip not in own),
        port_names=tuple(one.name for one in ports),
        node_ports=tuple(one.node_port for one in ports),
        affinity_seconds=affinity if spec.session_affinity == CLIENT_IP else 0,
        internal_local=spec.internal_traffic_policy == LOCAL,
        external_local=spec.external_traffic_policy == LOCAL,
        proxy_name=meta.labels.get(PROXY_LABEL, ""),
        load_balancer_ips=tuple(ip for ip in given if ip not in own),
        source_ranges=tuple(_source_range(text, refused) for text in spec.load_balancer_source_ranges),
        mode=_mode(meta.annotations.get(LOAD_BALANCER_MODE, "")),
        health_port=_health_port(spec),
        created=meta.creation_timestamp,
        uid=meta.uid,
        pools=pools_of(found),
        preferred=preferred_of(found),
        failback=failback_of(found),
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
    """The network; empty if no sender has an address of it."""
    if not (network := _network(text)):
        refused.append(f"spec.loadBalancerSourceRanges: {text[:MAX_TEXT]!r} is no network: it lets nobody in")
    elif kind := unusable_network(network, neighbours=True):
        refused.append(f"spec.loadBalancerSourceRanges: {network} has nothing but {kind}: it lets nobody in")
        return ""
    return network


def _mode(text: str) -> str:
    mode = text.strip().lower()
    return mode if mode in (NAT, DSR) else ""


def _health_port(spec: core.ServiceSpec) -> int:
    asked = spec.type == LOAD_BALANCER and spec.external_traffic_policy == LOCAL
    return spec.health_check_node_port if asked and spec.health_check_node_port in PORTS else 0


def _network(text: str) -> str:
    """Empty if it cannot be read."""
    address, slash, length = text.strip().partition("/")
    try:
        return str(ip_network(f"{stored(address)}{slash}{length}", strict=False))
    except ValueError:
        return ""


def endpoint_rows(found: EndpointSlice) -> tuple[ServiceEndpoint, ...]:
    """A row for each port and endpoint; addresses that cannot be read and ports without a number have none.

    Of a slice without ports the rows only have where Endpoints are.
    """
    meta = found.metadata
    service = meta.labels.get(SERVICE_LABEL, "")
    if not service:
        return ()
    own, of = f"{meta.namespace}/{meta.name}", f"{meta.namespace}/{service}"
    ports = _ports(found)
    rows = tuple(
        ServiceEndpoint(
            own,
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
        for endpoint in found.endpoints or ()
        if endpoint.addresses and (address := stored(endpoint.addresses[0]))
    )
    return rows if len({row.ip for row in rows}) * len(ports) == len(rows) else _best(rows)


def _best(rows: Iterable[ServiceEndpoint]) -> tuple[ServiceEndpoint, ...]:
    """One for each address: Pods that have their Node's may take over from each other."""
    best: dict[tuple[str, str], ServiceEndpoint] = {}
    for row in rows:
        place = (row.key, row.address)
        if (other := best.get(place)) is None or STATES.index(row.state) < STATES.index(other.state):
            best[place] = row
    return tuple(best.values())


def _ports(found: EndpointSlice) -> list[tuple[str, str, int]]:
    """Name, protocol and number of each."""
    ports = found.ports or ()
    if not ports:
        return [("", "", 0)]
    return [
        (port.name or "", port.protocol or "TCP", port.port)
        for port in ports
        if port.port in PORTS and port.port is not None
    ]


def _names(hints: Iterable[NamedHint] | None) -> tuple[str, ...]:
    return tuple(sorted({one.name for one in hints or () if one.name}))


SERVICE_WATCH = Watched("/api/v1/services", core.Service, Service, service_row)
ENDPOINT_SLICE_WATCH = Watched(
    "/apis/discovery.k8s.io/v1/endpointslices", EndpointSlice, ServiceEndpoint, endpoint_rows
)


def service_ports(facts: Facts, service: Service) -> Iterator[ServicePort]:
    """The ports of a Service that this agent serves, with the addresses that it serves them at."""
    config = facts.get(AgentConfig)
    if config is None or service.proxy_name != config.antrea_proxy.service_proxy_name:
        return
    proxy = config.antrea_proxy
    if {service.key, *service.ips} & set(proxy.skip_services):
        return
    wanted = tuple(wanted_externally(service, proxy))
    own = tuple(ip for ip in wanted if local_address_of(facts, ip))
    external = tuple(ip for ip in wanted if ip not in own and not whose(facts, ip))
    asked = (service.mode or proxy.default_load_balancer_mode) == DSR
    direct = asked and is_possible(facts)
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
            tuple(ip for ip in (*external, *own) if ip in service.load_balancer_ips)
            if service.source_ranges
            else (),
            service.source_ranges,
            service.created,
            direct and bool(external or (node_port and proxy.proxy_all)),
            service.consistent,
            tuple(served_ports(facts, service, own, protocol, port)),
        )


def wanted_externally(service: Service, proxy: AntreaProxy) -> Iterator[str]:
    """External addresses that the Service asks for; without proxyAll those of load balancers, for Pods."""
    families = {is_ipv6(ip) for ip in service.cluster_ips}
    for ip in service.external_ips:
        balanced = ip in service.load_balancer_ips and proxy.proxy_load_balancer_ips
        asked = proxy.proxy_all and (balanced or ip not in service.load_balancer_ips)
        if (balanced or asked) and is_ipv6(ip) in families:
            yield ip
