"""AntreaProxy in a real switch, by trace: which Endpoint a Pod's connection to a Service gets, in both families."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import CONFIG, GATEWAY, NEW, NODE, PEER, TUNNEL, ports

from antrea.apis import controlplane as cp
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.node_route.agent import FEATURE as NODE_ROUTE
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import FEATURE as PROXY
from antrea.openflow.group_tree import MAX_DESCRIBED
from antrea.openflow.pipeline import Pipeline
from tests.unit.features.policy_world import applied, block, interface, member, native, peer, rule

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.facts.fact import Fact

FEATURES = (POD_CONNECTIVITY, NODE_ROUTE, PROXY, POLICY)
PIPELINE = Pipeline.realize(
    table for one in FEATURES for table in one.tables_of(CONFIG, Families.of(NODE.pod_cidrs))
)
CLIENT, SERVER = interface("p11", 11), interface("p12", 12)
IPS = ("10.96.0.10", "fd00:96::a")
WEB = Service("a", "web", IPS, (("TCP", 80), ("UDP", 53)), port_names=("http", "dns"), node_ports=(0, 0))
NODES = (
    AgentNode("n1", NODE.node_ips, NODE.node_ips, pod_cidrs=NODE.pod_cidrs),
    AgentNode("n2", PEER.node_ips, PEER.node_ips, pod_cidrs=PEER.pod_cidrs),
)


def endpoint(ip: str, node: str = "n1", *, ready: bool = True, terminating: bool = False) -> ServiceEndpoint:
    """Behind port 80 of `WEB`, listening on 8080."""
    family = "6" if ":" in ip else "4"
    return ServiceEndpoint(
        f"a/web-{family}", "a/web", "http", "TCP", ip, 8080, node, ready, ready or terminating, terminating
    )


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


def install(bridge: OvsBridge, *rows: Fact) -> None:
    facts = Facts()
    known = (CONFIG, NODE, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE), *NODES, CLIENT, SERVER)
    gates = EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy"}))
    for low, high in ((one[1], one[2]) for one in POLICY.ranks):
        assert low < high
    for row in (*known, gates, *rows):
        facts.put(row)
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    engine = Engine(facts, [unit for one in FEATURES for unit in one.units])
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    bridge.clear()
    bridge.install(engine.standing().values(), PIPELINE)


def trace(
    bridge: OvsBridge,
    to: str,
    port: int = 80,
    protocol: str = "tcp",
    source: int = 40000,
    choice: int = 1,
    *,
    learns: bool = False,
) -> str:
    """A new connection of the client; OVS marks it new at each pass through connection tracking. It may learn flows of it."""
    six = ":" in to
    address, mac = CLIENT.ips[six], SERVER.mac if to in SERVER.ips else GATEWAY.mac
    kind, name = (protocol + "6", "ipv6") if six else (protocol, "nw")
    packet = (
        f"in_port={CLIENT.ofport},dl_src={CLIENT.mac},dl_dst={mac},{kind},{name}_src={address},"
        f"{name}_dst={to},nw_ttl=64,{protocol}_src={source},{protocol}_dst={port},dp_hash={choice:#x}"
    )
    return bridge.appctl("ofproto/trace", "br-int", packet, *NEW, *(("-generate",) if learns else ()))


def translated(text: str) -> set[str]:
    return set(re.findall(r"nat\(dst=([^)]*)\)", text))


def out(text: str) -> str:
    return re.findall(r"output port is (\S+)", text)[-1] if "output port is" in text else ""


REMOTE = ("10.10.1.12", "fd00:10:1::c")
six = pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])


def at(ip: str, port: int = 8080) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def choices(bridge: OvsBridge, to: str) -> set[str]:
    """Endpoints of 32 connections."""
    return set().union(*(translated(trace(bridge, to, choice=number)) for number in range(1, 33)))


@six
def test_a_connection_to_a_cluster_ip_gets_an_endpoint_on_this_node(bridge: OvsBridge, six: bool) -> None:
    install(bridge, WEB, endpoint(SERVER.ips[six]))
    text = trace(bridge, IPS[six])
    assert (translated(text), out(text)) == ({at(SERVER.ips[six])}, str(SERVER.ofport)), text


@six
def test_an_endpoint_on_another_node_is_reached_by_the_tunnel(bridge: OvsBridge, six: bool) -> None:
    install(bridge, WEB, endpoint(REMOTE[six], "n2"))
    text = trace(bridge, IPS[six])
    assert (translated(text), out(text)) == ({at(REMOTE[six])}, str(TUNNEL.ofport)), text


@six
def test_connections_are_spread_over_all_endpoints_that_are_ready(bridge: OvsBridge, six: bool) -> None:
    gone = endpoint("fd00:10:1::d" if six else "10.10.1.13", "n2", ready=False)
    draining = endpoint("fd00:10:1::e" if six else "10.10.1.14", "n2", ready=False, terminating=True)
    install(bridge, WEB, endpoint(SERVER.ips[six]), endpoint(REMOTE[six], "n2"), gone, draining)
    assert choices(bridge, IPS[six]) == {at(SERVER.ips[six]), at(REMOTE[six])}


@six
def test_an_endpoint_that_drains_is_used_where_none_is_ready(bridge: OvsBridge, six: bool) -> None:
    gone = endpoint(SERVER.ips[six], ready=False)
    install(bridge, WEB, gone, endpoint(REMOTE[six], "n2", ready=False, terminating=True))
    assert choices(bridge, IPS[six]) == {at(REMOTE[six])}


@six
@pytest.mark.parametrize("rows", [(), ("unready",)], ids=["no slice", "none ready"])
def test_a_service_without_endpoints_is_rejected_by_the_agent(
    bridge: OvsBridge, six: bool, rows: tuple[str, ...]
) -> None:
    install(bridge, WEB, *(endpoint(SERVER.ips[six], ready=False) for _ in rows))
    text = trace(bridge, IPS[six])
    assert "userdata=04" in text, text
    assert (translated(text), out(text)) == (set(), "")


@six
def test_internal_traffic_policy_local_chooses_on_this_node_alone(bridge: OvsBridge, six: bool) -> None:
    local = msgspec.structs.replace(WEB, internal_local=True)
    install(bridge, local, endpoint(SERVER.ips[six]), endpoint(REMOTE[six], "n2"))
    assert choices(bridge, IPS[six]) == {at(SERVER.ips[six])}
    install(bridge, local, endpoint(REMOTE[six], "n2"))
    assert "userdata=04" in trace(bridge, IPS[six])


@six
def test_a_pod_that_is_its_own_endpoint_gets_its_packets_back_from_the_gateway(
    bridge: OvsBridge, six: bool
) -> None:
    install(bridge, WEB, endpoint(CLIENT.ips[six]))
    text = trace(bridge, IPS[six])
    gateway = "fd00:10::1" if six else "10.10.0.1"
    assert f"nat(src={gateway})" in text, text
    assert translated(text) == {at(CLIENT.ips[six])}


@six
def test_session_affinity_learns_the_endpoint_for_the_seconds_of_the_service(
    bridge: OvsBridge, six: bool
) -> None:
    sticky = msgspec.structs.replace(WEB, affinity_seconds=10800)
    install(bridge, sticky, endpoint(SERVER.ips[six]), endpoint(REMOTE[six], "n2"))
    text = trace(bridge, IPS[six])
    assert "learn(table=SessionAffinity" in text or "hard_timeout=10800" in text, text
    assert len(translated(text)) == 1


@six
def test_a_rule_on_services_judges_connections_that_session_affinity_sends_on(
    bridge: OvsBridge, six: bool
) -> None:
    sticky = msgspec.structs.replace(WEB, affinity_seconds=10800)
    to_web = cp.NetworkPolicyPeer(to_services=(cp.ServiceReference(name="web", namespace="a"),))
    drop = native("p", "g", rule("Out", to_web, action="Drop"))
    install(bridge, sticky, endpoint(SERVER.ips[six]), *applied("g", member("p11")), drop)
    assert out(trace(bridge, IPS[six], learns=True)) == ""
    again = trace(bridge, IPS[six])
    assert translated(again) == {at(SERVER.ips[six])}
    assert "learn(" not in again
    assert out(again) == ""


def test_another_port_of_the_service_has_other_endpoints_and_an_unknown_one_none(bridge: OvsBridge) -> None:
    install(bridge, WEB, endpoint(SERVER.ips[0]))
    assert "userdata=04" in trace(bridge, IPS[0], 53, "udp")
    assert translated(trace(bridge, IPS[0], 81)) == set()


@six
def test_a_policy_judges_the_endpoint_and_a_rule_on_services_the_service(
    bridge: OvsBridge, six: bool
) -> None:
    """An egress rule sees the translated destination; `toServices` sees which Service was asked."""
    rows = (WEB, endpoint(SERVER.ips[six]), *applied("g", member("p11")))
    block_of = peer(blocks=[block(f"{SERVER.ips[six]}/{128 if six else 32}")])
    install(bridge, *rows, native("p", "g", rule("Out", block_of, action="Drop")))
    assert out(trace(bridge, IPS[six])) == ""
    to_web = cp.NetworkPolicyPeer(to_services=(cp.ServiceReference(name="web", namespace="a"),))
    install(bridge, *rows, native("p", "g", rule("Out", to_web, action="Drop")))
    assert out(trace(bridge, IPS[six])) == ""
    assert out(trace(bridge, SERVER.ips[six], 8080)) == str(SERVER.ofport)


@six
@pytest.mark.parametrize("skipped", [True, False], ids=["another-proxy", "external-address"])
def test_a_rule_on_services_judges_what_is_left_to_another_proxy(
    bridge: OvsBridge, six: bool, skipped: bool
) -> None:
    external = ("198.51.100.9", "2001:db8::9")
    more = {"proxy_name": "other"} if skipped else {"ips": IPS + external, "external_ips": external}
    rows = (msgspec.structs.replace(WEB, **more), endpoint(SERVER.ips[six]), *applied("g", member("p11")))
    to = (IPS if skipped else external)[six]
    install(bridge, *rows)
    assert (translated(trace(bridge, to)), out(trace(bridge, to))) == (set(), str(GATEWAY.ofport))
    to_web = cp.NetworkPolicyPeer(to_services=(cp.ServiceReference(name="web", namespace="a"),))
    install(bridge, *rows, native("p", "g", rule("Out", to_web, action="Drop")))
    assert out(trace(bridge, to)) == ""
    assert out(trace(bridge, to, 81)) == str(GATEWAY.ofport)


def test_ten_thousand_endpoints_of_one_service_all_get_connections(bridge: OvsBridge) -> None:
    """More buckets than OVS can describe in one group: it ends when it is asked to."""
    many = [endpoint(f"10.20.{number >> 8}.{number & 255}", "n2") for number in range(10_000)]
    install(bridge, WEB, *many)
    sizes = [line.count("bucket_id:") for line in bridge.ofctl("dump-groups").splitlines()]
    assert max(sizes) <= MAX_DESCRIBED
    assert sum(sizes) > 10_000
    found = set().union(
        *(translated(trace(bridge, IPS[0], choice=number, source=number)) for number in range(1, 129))
    )
    assert len(found) > 120
    assert found <= {at(one.ip) for one in many}
