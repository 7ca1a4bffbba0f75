"""What AntreaProxy counts of Services and Endpoints, by family."""

from __future__ import annotations

import re

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.engine.core.workload import Workload
from antrea.facts.node import ThisNode
from antrea.facts.service import EarlierConnection, Service, ServiceEndpoint
from antrea.features.proxy.agent import FEATURE, GATE
from antrea.features.proxy.agent_part.metrics import ProxyMetrics
from antrea.outside.log.workload_metrics import workload_samples

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"))
DUAL = Service("a", "web", ("10.96.0.10", "fd00:96::a"), (("TCP", 80),), port_names=("",), node_ports=(0,))
SINGLE = Service(
    "a", "db", ("10.96.0.11",), (("TCP", 80), ("UDP", 80)), port_names=("t", "u"), node_ports=(0, 0)
)


def endpoint(
    ip: str, slice_name: str = "web-1", service: str = "web", *, ready: bool = True
) -> ServiceEndpoint:
    return ServiceEndpoint(f"a/{slice_name}", f"a/{service}", "", "TCP", ip, 80, "n1", ready, ready, False)


def counts(metrics: ProxyMetrics) -> dict[str, int]:
    found = re.findall(
        r'^antrea_proxy_(?!sync)(?:total_)?(\w+?)(?:\{ip_family="(\w+)"\})? (\d+)$',
        metrics.text(Workload()),
        re.MULTILINE,
    )
    return {f"{name} {family}".strip(): int(number) for name, family, number in found}


def test_services_and_endpoints_are_counted_by_family_and_updates_as_they_come() -> None:
    facts = Facts()
    metrics = ProxyMetrics(facts)
    engine = Engine(facts, FEATURE.units)
    left = endpoint("10.10.0.9", "headless-1", "headless")
    again = endpoint("10.10.0.7", "web-2")
    earlier = EarlierConnection("tcp", "192.0.2.7", 40000, "10.96.0.10", 80, by_switch=True)
    rows = (
        AgentConfig(),
        NODE,
        earlier,
        DUAL,
        SINGLE,
        endpoint("10.10.0.7"),
        again,
        endpoint("fd00:10::7"),
        left,
    )
    for row in (*rows, endpoint("10.10.0.8", ready=False)):
        facts.put(row)
    engine.plan()
    before = counts(metrics)
    assert before == {
        "services_installed v4": 3,
        "services_installed v6": 1,
        "endpoints_installed v4": 2,
        "endpoints_installed v6": 1,
        "services_updates v4": 2,
        "services_updates v6": 1,
        "endpoints_updates v4": 4,
        "endpoints_updates v6": 1,
        "group_count": 4,
        "remembered_client_count": 0,
        "remembered_client_limit": 20000,
        "earlier_connection_count": 1,
        "earlier_connection_limit": 10000,
    }
    facts.drop(Service, DUAL.key)
    facts.drop(ServiceEndpoint, endpoint("fd00:10::7").key)
    engine.plan()
    after = counts(metrics)
    assert (after["services_installed v4"], after["services_installed v6"]) == (2, 0)
    assert (after["services_updates v4"], after["services_updates v6"]) == (3, 2)
    assert (after["endpoints_updates v6"], after["endpoints_installed v6"]) == (2, 0)


def test_the_time_that_services_take_is_shown_in_seconds() -> None:
    facts = Facts()
    engine = Engine(facts, FEATURE.units)
    for row in (AgentConfig(), NODE, DUAL, SINGLE, endpoint("10.10.0.7")):
        facts.put(row)
    engine.plan()
    found = engine.workloads()[GATE]
    text = ProxyMetrics(facts).text(found)
    name = "antrea_proxy_sync_proxy_rules_duration_seconds"
    assert sum(found.counts) > 0
    assert f"# TYPE {name} histogram" in text
    for family in ("v4", "v6"):
        assert f'{name}_count{{ip_family="{family}"}} {sum(found.counts)}' in text
        assert f'{name}_sum{{ip_family="{family}"}} {round(found.milliseconds / 1000, 3):g}' in text
    facts.put(ThisNode("n1", ("10.10.0.0/24",)))
    assert f'{name}_count{{ip_family="v6"}} 0' in ProxyMetrics(facts).text(found)


UPSTREAM = {
    "antrea_proxy_sync_proxy_rules_duration_seconds": (
        "histogram",
        "SyncProxyRules duration of Antrea Proxy in seconds",
    ),
    "antrea_proxy_total_services_installed": ("gauge", "The number of Services installed by Antrea Proxy"),
    "antrea_proxy_total_endpoints_installed": ("gauge", "The number of Endpoints installed by Antrea Proxy"),
    "antrea_proxy_total_services_updates": (
        "counter",
        "The cumulative number of Service updates received by Antrea Proxy",
    ),
    "antrea_proxy_total_endpoints_updates": (
        "counter",
        "The cumulative number of Endpoint updates received by Antrea Proxy",
    ),
}
"""Type and help of each, all with the label ip_family, v4 and v6 (pkg/agent/proxy/metrics/metrics.go)."""


def test_each_of_upstreams_metrics_is_there_with_its_type_its_words_and_both_families() -> None:
    text = ProxyMetrics(Facts()).text(Workload())
    for name, (kind, words) in UPSTREAM.items():
        assert f"# HELP {name} [ALPHA] {words}\n# TYPE {name} {kind}\n" in text
        labels = re.findall(rf'^{name}(?:_count)?\{{ip_family="(\w+)"\}} ', text, re.MULTILINE)
        assert labels == ["v4", "v6"]


def test_buckets_of_seconds_hold_what_took_as_many_milliseconds() -> None:
    workload = Workload()
    for milliseconds in (0.1, 4, 6, 3000, 20_000):
        workload.note(milliseconds / 1000)
    found = {one.labels["le"]: one.value for one in workload_samples(workload, unit=0.001) if one.labels}
    within = {"0.005": 2, "0.01": 3, "0.025": 3, "0.05": 3, "0.1": 3, "0.25": 3, "0.5": 3, "1": 3, "2.5": 3}
    assert found == within | {"5": 4, "10": 4, "+Inf": 5}
    of_milliseconds = {
        one.labels["le"]: one.value for one in workload_samples(workload, unit=1) if one.labels
    }
    assert (of_milliseconds["0.1"], of_milliseconds["5"], of_milliseconds["10"]) == (1, 2, 3)
