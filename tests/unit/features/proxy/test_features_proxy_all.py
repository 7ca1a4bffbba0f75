"""proxyAll on the host: sets, rules, routes and whom an address belongs to, row by row."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.apis import core
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts, Unit
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import EarlierConnection, HealthCheck, Service, ServiceEndpoint, ServicePort
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import FEATURE
from antrea.features.proxy.direct_path import GATE as DSR_GATE
from antrea.features.proxy.dsr import FEATURE as DSR_FEATURE
from antrea.features.proxy.dsr_node_port import FEATURE as DSR_NODE_PORT
from antrea.features.proxy.external_address import ExternalIPConflict
from antrea.features.proxy.health_check import local_endpoints
from antrea.features.proxy.service import service_row
from antrea.host.nft import NftElement, NftRule
from antrea.host.route import Neighbour, Route
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterable

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("192.0.2.1",))
ALL = AntreaProxy(proxy_all=True)
WEB = Service(
    "a",
    "web",
    ("10.96.0.10", "fd00:96::a", "198.51.100.9", "198.51.100.8"),
    (("TCP", 80), ("UDP", 53)),
    external_ips=("198.51.100.9", "198.51.100.8"),
    port_names=("http", "dns"),
    node_ports=(30080, 0),
    load_balancer_ips=("198.51.100.8",),
    created="2026-01-01T00:00:00Z",
    uid="u1",
)
N1, N2 = AgentNode("n1", ("192.0.2.1",), ()), AgentNode("n2", ("192.0.2.2",), ())


def world(
    *rows: Any, proxy: AntreaProxy = ALL, node: ThisNode = NODE, extra: tuple[Unit, ...] = ()
) -> tuple[Facts, Engine]:
    facts, config = Facts(), AgentConfig(antrea_proxy=proxy)
    tables = (
        table
        for one in (POD_CONNECTIVITY, POLICY, FEATURE)
        for table in one.tables_of(config, Families.of(node.pod_cidrs))
    )
    gateway = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:02")
    gates = EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy"}))
    for row in (config, node, gateway, gates, RealizedPipeline(Pipeline.realize(tables)), N1, N2, *rows):
        facts.put(row)
    engine = Engine(facts, (*FEATURE.units, *extra))
    return facts, engine


def standing(engine: Engine) -> list[Any]:
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    return list(engine.standing().values())


def elements(entries: Iterable[Any]) -> set[tuple[str, str]]:
    return {(one.set, one.value) for one in entries if isinstance(one, NftElement)}


def routes(entries: Iterable[Any]) -> set[tuple[str, str]]:
    return {(one.dst, one.via) for one in entries if isinstance(one, Route)}


def external(entries: Iterable[Any]) -> set[str]:
    """External addresses that have flows."""
    found = (one for one in entries if isinstance(one, Flow) and one.table == "ServiceLB")
    return {term.partition("=")[2] for one in found for term in one.match if term.startswith("nw_dst=198.")}


def said(engine: Engine) -> list[str]:
    return [act.message for act in engine.plan().acts if isinstance(act, ExternalIPConflict)]


def test_the_host_sends_every_address_of_a_service_to_the_switch() -> None:
    found = standing(world(WEB, LocalAddress("192.0.2.1", "eth0"))[1])
    assert routes(found) == {
        ("169.254.0.253/32", ""),
        ("169.254.0.252/32", "169.254.0.253"),
        ("169.254.0.248/32", "169.254.0.253"),
        ("fc01::aabb:ccdd:eeff/128", ""),
        ("fc01::aabb:ccdd:eefe/128", "fc01::aabb:ccdd:eeff"),
        ("fc01::aabb:ccdd:eefa/128", "fc01::aabb:ccdd:eeff"),
        ("10.96.0.10/32", "169.254.0.253"),
        ("198.51.100.9/32", "169.254.0.253"),
        ("198.51.100.8/32", "169.254.0.253"),
        ("fd00:96::a/128", "fc01::aabb:ccdd:eeff"),
    }
    assert elements(found) == {
        ("node-port-ip", "192.0.2.1"),
        ("node-port", "tcp . 30080"),
        ("node-port6", "tcp . 30080"),
        ("external-ip", "198.51.100.9"),
        ("external-ip", "198.51.100.8"),
    }
    assert {(one.ip, one.mac) for one in found if isinstance(one, Neighbour)} == {
        ("169.254.0.253", "aa:bb:cc:dd:ee:ff"),
        ("fc01::aabb:ccdd:eeff", "aa:bb:cc:dd:ee:ff"),
    }


def test_rules_translate_node_ports_and_leave_external_addresses_to_the_switch() -> None:
    rules = sorted((one.chain, one.text) for one in standing(world()[1]) if isinstance(one, NftRule))
    own = "dnat ip to ip daddr . meta l4proto . th dport map @own-external-ip"
    assert [rule for rule in rules if "ip6" not in rule[1]] == [
        ("output-nat", own),
        (
            "output-nat",
            "ip daddr @node-port-ip meta l4proto . th dport @node-port dnat ip to 169.254.0.252",
        ),
        ("output-raw", "ip daddr @external-ip fib daddr type != local notrack"),
        ("postrouting", "ip saddr 169.254.0.253 masquerade"),
        ("prerouting-nat", own),
        (
            "prerouting-nat",
            "ip daddr @node-port-ip meta l4proto . th dport @node-port dnat ip to 169.254.0.252",
        ),
        ("prerouting-raw", "ip daddr @external-ip fib daddr type != local notrack"),
        ("prerouting-raw", "ip saddr @external-ip notrack"),
    ]
    assert len(rules) == 16


def test_what_sends_packets_to_a_service_comes_after_its_flows() -> None:
    found = standing(world(WEB, LocalAddress("192.0.2.1", "eth0"))[1])
    sends = [one for one in found if isinstance(one, NftElement) or (isinstance(one, Route) and one.via)]
    assert {one.rank for one in sends} == {Rank.SENDS}
    assert {one.rank for one in found if isinstance(one, Flow)} == {Rank.FLOW}


def test_without_proxy_all_the_host_has_nothing_and_pods_get_load_balancer_addresses() -> None:
    found = standing(world(WEB, LocalAddress("192.0.2.1", "eth0"), proxy=AntreaProxy())[1])
    assert (routes(found), elements(found)) == (set(), set())
    assert not any(isinstance(one, NftRule | Neighbour) for one in found)
    assert not any("reg4=0x90000/0xf0000" in one.match for one in found if isinstance(one, Flow))
    assert external(found) == {"198.51.100.8"}


@pytest.mark.parametrize(("proxy_all", "served"), [(True, {"198.51.100.9"}), (False, set())])
def test_load_balancer_addresses_may_be_left_to_the_load_balancer(proxy_all: bool, served: set[str]) -> None:
    proxy = AntreaProxy(proxy_all=proxy_all, proxy_load_balancer_ips=False)
    assert external(standing(world(WEB, proxy=proxy)[1])) == served


@pytest.mark.parametrize(
    ("addresses", "served"),
    [
        ((), {"192.0.2.1", "203.0.113.1", "2001:db8::1"}),
        (("192.0.2.0/24", "2001:db8::/32"), {"192.0.2.1", "2001:db8::1"}),
        (("192.0.2.9/24",), {"192.0.2.1"}),
        (("198.51.100.0/24",), set()),
    ],
)
def test_node_ports_are_served_at_the_chosen_addresses_of_the_nodes_own_interfaces(
    addresses: tuple[str, ...], served: set[str]
) -> None:
    rows = (
        LocalAddress("192.0.2.1", "eth0"),
        LocalAddress("203.0.113.1", "eth1"),
        LocalAddress("2001:db8::1", "eth0"),
        LocalAddress("10.10.0.1", "antrea-gw0"),
        LocalAddress("192.0.2.50", "antrea-egress0"),
        LocalAddress("192.0.2.51", "antrea-ext.7"),
        LocalAddress("192.0.2.52", "kube-ipvs0"),
        LocalAddress("10.96.0.9", "antrea-earlier0"),
    )
    proxy = AntreaProxy(proxy_all=True, node_port_addresses=addresses)
    found = standing(world(*rows, proxy=proxy)[1])
    assert {ip for name, ip in elements(found) if name.startswith("node-port-ip")} == served
    marked = {
        term.partition("=")[2]
        for one in found
        if isinstance(one, Flow) and one.table == "NodePortMark" and one.priority
        for term in one.match
        if "dst=" in term
    }
    assert marked == {*served, "169.254.0.252", "fc01::aabb:ccdd:eefe"}


def test_an_address_that_comes_later_serves_node_ports_at_once() -> None:
    facts, engine = world(WEB)
    standing(engine)
    facts.put(LocalAddress("192.0.2.77", "eth2"))
    assert elements(engine.plan().put) == {("node-port-ip", "192.0.2.77")}


def test_a_service_of_one_family_has_its_node_port_in_that_family() -> None:
    ipv4 = msgspec.structs.replace(WEB, ips=("10.96.0.10",), external_ips=())
    found = standing(world(ipv4)[1])
    assert elements(found) == {("node-port", "tcp . 30080")}
    assert routes(found) >= {("10.96.0.10/32", "169.254.0.253")}


@pytest.mark.parametrize("skipped", [{"skip_services": ("a/web",)}, {"service_proxy_name": "x"}])
def test_what_is_left_to_another_proxy_keeps_its_route(skipped: dict[str, Any]) -> None:
    """Upstream routes the smallest network with all ClusterIPs, which has this one, too."""
    found = standing(world(WEB, proxy=AntreaProxy(proxy_all=True, **skipped))[1])
    assert {dst for dst, _ in routes(found) if not dst.startswith(("169.254", "fc01"))} == set()
    assert elements(found) == set()


@pytest.mark.parametrize(
    ("ip", "whose"),
    [
        ("192.0.2.2", "Node n2"), ("192.0.2.1", "Node n1"), ("10.96.0.1", "Service default/kubernetes"),
        ("203.0.113.3", "Node n3"), ("203.0.113.4", "Node n3"),
        ("10.10.3.77", "the Pods of Node n3"), ("fd00:10:3::7", "the Pods of Node n3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("balanced", [False, True], ids=["externalIPs", "load balancer"])
def test_an_external_address_that_is_anothers_is_refused_with_an_event(
    ip: str, whose: str, balanced: bool
) -> None:
    kubernetes = Service("default", "kubernetes", ("10.96.0.1",), (("TCP", 443),), port_names=("https",), node_ports=(0,))  # fmt: skip
    bad = msgspec.structs.replace(
        WEB, ips=("10.96.0.10", ip), external_ips=(ip,), load_balancer_ips=(ip,) if balanced else ()
    )
    other = AgentNode(
        "n3", ("192.0.2.3",), ("203.0.113.3",), pod_cidrs=("10.10.3.0/24", "fd00:10:3::/64"), external_ips=("203.0.113.4",)
    )  # fmt: skip
    proxy = msgspec.structs.replace(ALL, serve_node_external_ips=False)
    facts, engine = world(kubernetes, bad, other, proxy=proxy)
    assert said(engine) == [f"{ip} is an address of {whose}: it is not served as an external IP"]
    found = list(engine.standing().values())
    assert all(ip not in value for _, value in elements(found))
    assert (f"{ip}/32", "169.254.0.253") not in routes(found) - {("10.96.0.1/32", "169.254.0.253")}
    served = facts.get(ServicePort, "a/web:80/TCP")
    assert served is not None
    assert served.external_ips == ()


def test_a_node_that_comes_with_the_address_of_a_service_gets_it() -> None:
    facts, engine = world(WEB)
    assert external(standing(engine)) == {"198.51.100.8", "198.51.100.9"}
    facts.put(AgentNode("n3", ("198.51.100.9",), ()))
    assert external(standing(engine)) == {"198.51.100.8"}


def test_of_two_claims_the_older_is_served_and_the_younger_is_told() -> None:
    late = msgspec.structs.replace(
        WEB,
        name="late",
        ips=("10.96.0.11", "198.51.100.9"),
        external_ips=("198.51.100.9",),
        load_balancer_ips=(),
        node_ports=(0, 0),
        created="2026-02-01T00:00:00Z",
    )
    facts, engine = world(WEB, late)
    assert said(engine) == [
        "198.51.100.9, port 80/TCP belongs to Service a/web, which is older",
        "198.51.100.9, port 53/UDP belongs to Service a/web, which is older",
    ]
    facts.drop(Service, "a/web")
    assert external(standing(engine)) == {"198.51.100.9"}


def test_one_agent_speaks_for_all() -> None:
    bad = msgspec.structs.replace(WEB, ips=("10.96.0.10", "192.0.2.2"), external_ips=("192.0.2.2",))
    proxy = msgspec.structs.replace(ALL, serve_node_external_ips=False)
    assert len(said(world(bad, proxy=proxy)[1])) == 1
    assert said(world(bad, proxy=proxy, node=msgspec.structs.replace(NODE, name="n2"))[1]) == []


def test_the_host_hands_node_ports_with_direct_return_over_untracked() -> None:
    other = LocalAddress("192.0.2.9", "eth0")
    rows = (msgspec.structs.replace(WEB, mode="dsr"), LocalAddress("192.0.2.1", "eth0"), other)
    facts, engine = world(*rows, extra=(*DSR_FEATURE.units, *DSR_NODE_PORT.units))
    facts.put(EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy", DSR_GATE})))
    found = standing(engine)
    raw = [
        one.text
        for one in found
        if isinstance(one, NftRule) and "direct" in one.name and "ip6" not in one.name
    ]
    assert raw == [
        'iifname != "antrea-gw0" ip daddr 192.0.2.1 meta l4proto . th dport @direct-node-port ip daddr set 169.254.0.250 notrack',
        'iifname "antrea-gw0" ip saddr 169.254.0.250 notrack',
        'iifname "antrea-gw0" ip saddr @peer-node-ip meta l4proto . th sport @direct-node-port notrack',
        "ip saddr 169.254.0.250 ip saddr set 192.0.2.1",
    ]
    assert ("direct-node-port", "tcp . 30080") in elements(found)
    assert ("169.254.0.250/32", "169.254.0.253") in routes(found)
    facts.put(msgspec.structs.replace(WEB, mode="nat"))
    assert ("direct-node-port", "tcp . 30080") not in elements(standing(engine))
    chosen = msgspec.structs.replace(ALL, node_port_addresses=("192.0.2.9/32",))
    facts.put(AgentConfig(antrea_proxy=chosen))
    assert not [
        one for one in standing(engine) if isinstance(one, NftRule) and "169.254.0.250 notrack" in one.text
    ]


def test_a_row_has_what_load_balancers_say_and_ask() -> None:
    found = {
        "metadata": {
            "namespace": "a",
            "name": "web",
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "clusterIPs": ["10.96.0.10"],
            "type": "LoadBalancer",
            "ports": [{"port": 80, "nodePort": 30080}],
            "loadBalancerSourceRanges": [" 192.0.2.7/24 ", "::/0", "all"],
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000,
        },
        "status": {
            "loadBalancer": {"ingress": [{"ip": "203.0.113.9"}, {"ip": "203.0.113.8", "ipMode": "Proxy"}]}
        },
    }
    row = service_row(msgspec.convert(found, core.Service))
    assert row is not None
    assert (row.load_balancer_ips, row.external_ips) == (("203.0.113.9",), ("203.0.113.9",))
    assert row.source_ranges == ("192.0.2.0/24", "::/0", "")
    assert (row.health_port, row.created, row.uid) == (31000, "2026-01-01T00:00:00Z", "u")


CHECKED = msgspec.structs.replace(WEB, external_local=True, health_port=31000)


@pytest.mark.parametrize(
    ("service", "proxy", "checks"),
    [
        (CHECKED, ALL, [HealthCheck("a", "web", 31000, "u1")]),
        (WEB, ALL, []),
        (CHECKED, AntreaProxy(), []),
        (CHECKED, AntreaProxy(proxy_all=True, disable_service_health_check_server=True), []),
        (CHECKED, AntreaProxy(proxy_all=True, skip_services=("a/web",)), []),
    ],
)
def test_a_service_that_asks_for_a_health_check_has_one(
    service: Service, proxy: AntreaProxy, checks: list[HealthCheck]
) -> None:
    facts, engine = world(service, proxy=proxy)
    standing(engine)
    assert list(facts.all(HealthCheck)) == checks


def test_ready_endpoints_of_this_node_count_once_each() -> None:
    def endpoint(ip: str, port: str, node: str = "n1", *, ready: bool = True) -> ServiceEndpoint:
        protocol = "TCP" if port == "http" else "UDP"
        return ServiceEndpoint("a/web-1", "a/web", port, protocol, ip, 8080, node, ready, ready, False)

    rows = [endpoint("10.10.0.7", "http"), endpoint("10.10.0.7", "dns"), endpoint("10.10.0.8", "http")]
    rows += [endpoint("10.10.0.9", "http", ready=False), endpoint("10.10.1.7", "http", "n2")]
    facts, engine = world(CHECKED, *rows)
    standing(engine)
    assert (local_endpoints(facts, "a/web"), local_endpoints(facts, "a/other")) == (2, 0)


def earlier(ip: str, port: int = 80, *, by_switch: bool) -> EarlierConnection:
    return EarlierConnection("tcp", "203.0.113.7", 40000, ip, port, by_switch)


OFF = AntreaProxy()
VIRTUAL = {"169.254.0.253/32", "169.254.0.252/32"}


@pytest.mark.parametrize(
    ("ip", "routes", "elements"),
    [
        ("10.96.0.10", {"10.96.0.10/32"}, set()),
        ("169.254.0.252", set(), set()),
        ("198.51.100.9", {"198.51.100.9/32"}, {"tcp . 203.0.113.7 . 40000 . 198.51.100.9 . 80"}),
    ],
)
def test_a_connection_of_the_switch_keeps_its_way_and_no_other_address_has_one(
    ip: str, routes: set[str], elements: set[str]
) -> None:
    _facts, engine = world(WEB, N1, earlier(ip, by_switch=True), proxy=OFF)
    put = engine.plan().put
    assert {one.dst for one in put if isinstance(one, Route)} == VIRTUAL | routes
    assert {one.value for one in put if isinstance(one, NftElement)} == elements


def test_the_way_of_a_connection_goes_with_it() -> None:
    row = earlier("10.96.0.10", by_switch=True)
    facts, engine = world(WEB, N1, row, proxy=OFF)
    engine.plan()
    facts.drop(EarlierConnection, row.key)
    gone = {one.dst for one in engine.plan().drop if isinstance(one, Route)}
    assert gone == VIRTUAL | {"10.96.0.10/32"}


@pytest.mark.parametrize(
    ("ip", "port", "kept"),
    [("198.51.100.9", 80, True), ("198.51.100.9", 81, False), ("10.96.0.10", 80, False)],
)
def test_a_connection_that_the_host_translates_stays_tracked_if_its_address_is_external(
    ip: str, port: int, kept: bool
) -> None:
    _facts, engine = world(WEB, N1, earlier(ip, port, by_switch=False))
    put = engine.plan().put
    sets = [one for one in put if isinstance(one, NftElement) and one.set == "earlier-connection"]
    assert [one.value for one in sets] == ([f"tcp . 203.0.113.7 . 40000 . {ip} . {port}"] if kept else [])
    texts = {one.name: one.text for one in put if isinstance(one, NftRule) and one.chain == "prerouting-raw"}
    ends = "meta l4proto . ip saddr . th sport . ip daddr . th dport"
    known = f"fib daddr type != local {ends} != @earlier-connection"
    assert texts["to external IPs, ip"] == f"ip daddr @external-ip {known} notrack"
    assert texts["to external IPs, ip6"] == "ip6 daddr @external-ip6 fib daddr type != local notrack"


NUMBER = re.compile(r"\bid=\d+|group:\d+|0x[0-9a-f]+->reg7|object_id=\d+")
"""Of groups and buckets."""
FLIPS: dict[str, dict[str, Any]] = {
    "ClusterIP": {"type": "ClusterIP", "clusterIPs": ["10.96.0.10"]},
    "NodePort": {"type": "NodePort", "clusterIPs": ["10.96.0.10"], "nodePort": 30080},
    "ExternalName": {"type": "ExternalName", "externalName": "example.org"},
    "headless": {"type": "ClusterIP", "clusterIPs": ["None"]},
    "other ClusterIP": {"type": "ClusterIP", "clusterIPs": ["10.96.0.77"]},
    "IPv6": {"type": "ClusterIP", "clusterIPs": ["fd00:96::a"]},
    "both": {"type": "NodePort", "clusterIPs": ["fd00:96::a", "10.96.0.10"], "nodePort": 30081},
}


def flipped(kind: str) -> Service | None:
    spec = dict(FLIPS[kind])
    port = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": spec.pop("nodePort", 0)}
    found = {"metadata": {"name": "web", "namespace": "a"}, "spec": {**spec, "ports": [port]}}
    return service_row(msgspec.convert(found, core.Service))


def endpoint_of(ip: str) -> ServiceEndpoint:
    return ServiceEndpoint(f"a/web-{ip}", "a/web", "http", "TCP", ip, 8080, "n1", True, True, False)


@pytest.mark.parametrize("after", FLIPS)
@pytest.mark.parametrize("before", FLIPS)
def test_a_service_that_flips_stands_as_if_it_had_always_been_so(before: str, after: str) -> None:
    """Nothing is left of what it was, and numbers of groups apart nothing is missing."""
    ends = [endpoint_of("10.10.0.7"), endpoint_of("fd00:10::7")]

    def texts(*kinds: str) -> Counter[str]:
        facts, engine = world(*ends)
        for kind in kinds:
            row = flipped(kind)
            facts.put(row) if row else facts.drop(Service, "a/web")
            found = standing(engine)
        return Counter(NUMBER.sub("#", str(one)) for one in found)

    assert texts(before, after) == texts(after)
