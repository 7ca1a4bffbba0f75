"""Policies on Nodes at addresses of Services: where they are judged, and what the report says where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from policy_world import ANY, CONFIG, NODE, PIPELINE, applied, native, port, rule

from antrea.apis import controlplane as cp
from antrea.apis.annotation import ENFORCEMENT
from antrea.apis.policy_report import AT_SERVICES, ON_NODE, PolicyReport
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.node_policy.agent import FEATURE
from antrea.features.proxy.agent import FEATURE as PROXY
from antrea.host.nft import NftChain, NftElement, NftRule

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig

GATES = EnabledGates("agent", frozenset({"AntreaPolicy", "AntreaProxy", "NodeNetworkPolicy"}))
THIS = applied("nodes", cp.GroupMember(node=cp.NodeReference(name="n1")))
CLUSTER, EXTERNAL, BALANCED = (
    ("10.96.0.10", "fd00:96::a"),
    ("198.51.100.9",),
    ("198.51.100.8", "2001:db8:9::8"),
)
SERVICE = Service(
    "shop",
    "web",
    (*CLUSTER, *EXTERNAL, *BALANCED),
    (("TCP", 80), ("TCP", 443)),
    external_ips=(*EXTERNAL, *BALANCED),
    port_names=("http", "https"),
    node_ports=(30080, 30443),
    load_balancer_ips=BALANCED,
)
DROP = rule("In", ANY, port(80), action="Drop", name="no-web")


def config(**proxy: Any) -> AgentConfig:
    return msgspec.structs.replace(CONFIG, antrea_proxy=AntreaProxy(**proxy))


def standing(*rows: Any, settings: AgentConfig) -> list[Any]:
    facts = Facts()
    for feature in (POLICY, PROXY):
        for pool, low, high in feature.ranks:
            facts.ids.between(pool, low, high)
    nodes = [AgentNode("n1", ("192.0.2.1",), ("192.0.2.1",), pod_cidrs=NODE.pod_cidrs)]
    gateway = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")
    for row in (settings, RealizedPipeline(PIPELINE), NODE, GATES, *THIS, *nodes, gateway, *rows):
        facts.put(row)
    engine = Engine(facts, (*POLICY.units, *FEATURE.units, *PROXY.units))
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    return list(engine.standing().values())


def report(*rows: Any, settings: AgentConfig) -> str:
    found = standing(*rows, ApiServerEndpoint("192.0.2.100", 6443), settings=settings)
    (one,) = (one for one in found if isinstance(one, PolicyReport))
    return one.message


def chain(found: list[Any], name: str) -> list[str]:
    rules = sorted(
        (one for one in found if isinstance(one, NftRule) and one.chain == name), key=lambda one: one.order
    )
    return [one.text for one in rules]


def test_with_proxy_all_packets_to_services_meet_the_ingress_rules_where_they_are_forwarded() -> None:
    policy = native("p", "nodes", DROP)
    server = ApiServerEndpoint("192.0.2.100", 6443)
    found = standing(policy, SERVICE, server, settings=config(proxy_all=True))
    assert chain(found, "node-service") == [
        "ct state established,related accept",
        'iifname "antrea-gw0" accept',
        'oifname != "antrea-gw0" accept',
        "meta mark & 0x20000000 == 0x20000000 accept",
        "ct state untracked tcp flags & (syn | ack) != syn accept",
        "ip daddr @node-service-ip jump node-service-judged",
        "ip6 daddr @node-service-ip6 jump node-service-judged",
    ]
    assert chain(found, "node-service-judged") == ["jump node-ingress-rules", "jump node-ingress-baseline"]
    hooks = [one.hook for one in found if isinstance(one, NftChain) and one.name == "node-service"]
    assert hooks == ["type filter hook forward priority filter; policy accept;"]
    sets = {
        one.value for one in found if isinstance(one, NftElement) and one.set.startswith("node-service-ip")
    }
    assert sets == {*CLUSTER, *EXTERNAL, *BALANCED}
    assert not chain(found, "node-service-audit")


def test_without_proxy_all_or_an_api_server_no_policy_is_asked_there() -> None:
    policy = native("p", "nodes", DROP)
    server = ApiServerEndpoint("192.0.2.100", 6443)
    assert not chain(standing(policy, SERVICE, server, settings=CONFIG), "node-service")
    assert not chain(standing(policy, SERVICE, settings=config(proxy_all=True)), "node-service")


@pytest.mark.parametrize(
    ("settings", "rows", "wanted"),
    [
        (CONFIG, (), "no-web at 80/TCP"),
        (config(proxy_all=True), (), ""),
        (config(proxy_all=True, skip_services=("shop/web",)), (), "no-web at 80/TCP"),
        (config(proxy_all=True, service_proxy_name="mesh"), (), "no-web at 80/TCP"),
        # kube-proxy in mode ipvs has the addresses on an interface
        (CONFIG, (LocalAddress(CLUSTER[0], "kube-ipvs0"),), ""),
    ],
    ids=["kube-proxy", "proxyAll", "skipped", "another proxy", "ipvs"],
)
def test_the_report_names_rules_that_do_not_hold_at_services(
    settings: AgentConfig, rows: tuple[Any, ...], wanted: str
) -> None:
    policy = native("p", "nodes", DROP, rule("In", ANY, port(22), action="Drop", name="no-ssh", priority=1))
    assert report(policy, SERVICE, *rows, settings=settings) == ON_NODE + (
        AT_SERVICES + wanted if wanted else ""
    )


def test_rules_that_deny_nothing_there_are_not_named() -> None:
    inside = msgspec.structs.replace(SERVICE, ips=CLUSTER, external_ips=(), load_balancer_ips=())
    assert report(native("p", "nodes", DROP), inside, settings=CONFIG) == ON_NODE
    for one in (
        rule("In", ANY, port(80), action="Allow"),
        rule("Out", ANY, port(80), action="Drop"),
        rule("In", ANY, port(80, protocol="UDP"), action="Drop"),
    ):
        assert report(native("p", "nodes", one), SERVICE, settings=CONFIG) == ON_NODE
    everything = rule("In", ANY, action="Reject", name="all")
    said = report(native("p", "nodes", everything), SERVICE, settings=CONFIG)
    assert said.endswith(f"{AT_SERVICES}all at 443/TCP, 80/TCP")
    audited = native("p", "nodes", DROP)
    meta = msgspec.structs.replace(audited.policy.metadata, annotations={ENFORCEMENT: "audit"})
    audited = type(audited)(msgspec.structs.replace(audited.policy, metadata=meta))
    assert AT_SERVICES not in report(audited, SERVICE, settings=CONFIG)
