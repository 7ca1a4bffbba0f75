"""Metrics of AntreaProxy, under upstream's names; and, in addition, how much of each of its limits is used.

parity: pkg/agent/proxy/metrics/metrics.go
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from antrea.engine.core.workload import Workload
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.service import EarlierConnection, Service, ServiceEndpoint, ServicePort
from antrea.features.proxy.agent_part.earlier_connections import MAX_CONNECTIONS as MAX_EARLIER
from antrea.features.proxy.agent_part.kept_affinity import MAX_CHOICES as MAX_CLIENTS
from antrea.features.proxy.endpoint import GROUPS
from antrea.openflow.group_tree import MAX_NUMBER
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.log.workload_metrics import workload_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.facts.fact import Fact

SERVICES = Metric(
    "antrea_proxy_total_services_installed",
    "gauge",
    "ALPHA",
    "The number of Services installed by Antrea Proxy",
)
ENDPOINTS = Metric(
    "antrea_proxy_total_endpoints_installed",
    "gauge",
    "ALPHA",
    "The number of Endpoints installed by Antrea Proxy",
)
SERVICE_UPDATES = Metric(
    "antrea_proxy_total_services_updates",
    "counter",
    "ALPHA",
    "The cumulative number of Service updates received by Antrea Proxy",
)
ENDPOINT_UPDATES = Metric(
    "antrea_proxy_total_endpoints_updates",
    "counter",
    "ALPHA",
    "The cumulative number of Endpoint updates received by Antrea Proxy",
)
DURATION = Metric(
    "antrea_proxy_sync_proxy_rules_duration_seconds",
    "histogram",
    "ALPHA",
    "SyncProxyRules duration of Antrea Proxy in seconds",
)
GROUP_COUNT = Metric(
    "antrea_proxy_group_count",
    "gauge",
    "ALPHA",
    "The number of groups by which Antrea Proxy chooses Endpoints",
)
GROUP_LIMIT = Metric(
    "antrea_proxy_group_limit", "gauge", "ALPHA", "The number of groups for which Antrea Proxy has room"
)
CLIENT_COUNT = Metric(
    "antrea_proxy_remembered_client_count",
    "gauge",
    "ALPHA",
    "The number of clients whose Endpoint Antrea Proxy keeps over a restart of Open vSwitch",
)
CLIENT_LIMIT = Metric(
    "antrea_proxy_remembered_client_limit",
    "gauge",
    "ALPHA",
    "The number of clients whose Endpoint Antrea Proxy would keep over a restart of Open vSwitch",
)
EARLIER_COUNT = Metric(
    "antrea_proxy_earlier_connection_count",
    "gauge",
    "ALPHA",
    "The number of connections that continue with the proxy they began with",
)
EARLIER_LIMIT = Metric(
    "antrea_proxy_earlier_connection_limit",
    "gauge",
    "ALPHA",
    "The number of connections that could continue with the proxy they began with",
)
FAMILIES = {False: "v4", True: "v6"}


class ProxyMetrics:
    """Counter of updates from now on."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._updates: Counter[tuple[type[Fact], bool]] = Counter()
        self._known: dict[str, frozenset[bool]] = {}
        """Families of Services, by their keys: the end of one is an update of its families."""
        facts.observe(Service, self._service)
        facts.observe(ServiceEndpoint, self._endpoint)

    def _service(self, kind: type[Fact], key: str) -> None:
        if not key:
            return
        row = self._facts.get(Service, key)
        families = frozenset(map(is_ipv6, row.ips)) if row else self._known.pop(key, frozenset())
        if row:
            self._known[key] = families
        for ipv6 in families:
            self._updates[kind, ipv6] += 1

    def _endpoint(self, kind: type[Fact], key: str) -> None:
        """Its address is the end of its key."""
        if key:
            self._updates[kind, is_ipv6(key.rpartition("/")[2])] += 1

    def text(self, workload: Workload, clients: int = 0) -> str:
        """Render the metrics in Prometheus' format; `workload` is that of the units of Services and Endpoints, `clients` those
        with affinity.
        """
        ports = self._facts.all(ServicePort)
        services = Counter(ipv6 for port in ports for ipv6 in {is_ipv6(ip) for ip in port.cluster_ips})
        behind = {port.behind for port in ports}
        ends = {
            (endpoint.behind, endpoint.ip, endpoint.port)
            for endpoint in self._facts.all(ServiceEndpoint)
            if endpoint.behind in behind
        }
        endpoints = Counter(is_ipv6(ip) for _, ip, _ in ends)
        groups = sum(pool == GROUPS for pool, _ in self._facts.ids.standing())
        return "".join(
            (
                SERVICES.text(_by_family(services)),
                ENDPOINTS.text(_by_family(endpoints)),
                SERVICE_UPDATES.text(_by_family(self._of(Service))),
                ENDPOINT_UPDATES.text(_by_family(self._of(ServiceEndpoint))),
                DURATION.text(self._durations(workload)),
                GROUP_COUNT.text([Sample(groups)]),
                GROUP_LIMIT.text([Sample(MAX_NUMBER)]),
                CLIENT_COUNT.text([Sample(clients)]),
                CLIENT_LIMIT.text([Sample(MAX_CLIENTS)]),
                EARLIER_COUNT.text([Sample(sum(1 for _ in self._facts.all(EarlierConnection)))]),
                EARLIER_LIMIT.text([Sample(MAX_EARLIER)]),
            )
        )

    def _durations(self, workload: Workload) -> Iterator[Sample]:
        """One job works out a port in all families of the Node: it counts in each of them."""
        node = self._facts.get(ThisNode)
        families = node.families if node else frozenset()
        for ipv6, name in FAMILIES.items():
            for sample in workload_samples(workload if ipv6 in families else Workload(), unit=0.001):
                yield Sample(sample.value, {"ip_family": name, **sample.labels}, sample.suffix)

    def _of(self, kind: type[Fact]) -> Counter[bool]:
        return Counter({ipv6: self._updates[kind, ipv6] for ipv6 in FAMILIES})


def _by_family(counts: Counter[bool]) -> Iterable[Sample]:
    return (Sample(counts[ipv6], {"ip_family": name}) for ipv6, name in FAMILIES.items())
