"""Direct server return without tunnels: between Nodes on one network packets are passed on by their MAC addresses."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from antrea.agent.node.cluster_feed import cluster_node
from antrea.apis import core
from antrea.apis.annotation import LINK, NodeAnnotation
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalLink, ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service, ServiceEndpoint
from antrea.facts.unrealized import Unrealized
from antrea.features.framework.gate import EnabledGates
from antrea.features.node_route.agent import FEATURE as NODE_ROUTE
from antrea.features.proxy.agent import FEATURE
from antrea.features.proxy.direct_path import GATE, HOP_UNITS
from antrea.features.proxy.dsr import FEATURE as DSR
from antrea.features.proxy.dsr import ModeUnavailable
from antrea.features.proxy.dsr_no_tunnel import FEATURE as DSR_NO_TUNNEL
from antrea.features.proxy.dsr_no_tunnel import PathRefused, refusal_text
from antrea.features.proxy.dsr_node_port import FEATURE as DSR_NODE_PORT
from antrea.host.nft import NftElement, NftHops, NftRule
from antrea.host.route import Route, RoutingRule
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group

OWN, HOST = ("192.0.2.1", "2001:db8:2::1"), ("192.0.2.2", "2001:db8:2::2")
MACS = {"n1": "02:00:00:00:00:01", "n2": "02:00:00:00:00:02"}
CIDRS = {"n1": ("10.10.0.0/24", "fd00:10::/64"), "n2": ("10.10.1.0/24", "fd00:10:1::/64")}
ALL = AntreaProxy(proxy_all=True)
WEB = Service(
    "a",
    "web",
    ("10.96.0.10", "fd00:96::a", "198.51.100.9"),
    (("TCP", 80),),
    external_ips=("198.51.100.9",),
    port_names=("http",),
    node_ports=(30080,),
    created="2026-01-01T00:00:00Z",
)
REMOTE = ServiceEndpoint("a/w-4", "a/web", "http", "TCP", "10.10.1.12", 8080, "n2", True, True, False)
HOP = "02:eb:00:00:00:01"
"""Of n2, for the host."""
UNITS = [unit for one in (NODE_ROUTE, FEATURE, DSR, DSR_NODE_PORT, DSR_NO_TUNNEL) for unit in one.units]


def world(
    *rows: Any,
    mode: Literal["encap", "noEncap"] = "noEncap",
    networks: tuple[str, ...] = ("192.0.2.1/24", "2001:db8:2::1/64"),
    proxy: AntreaProxy = ALL,
) -> tuple[Facts, Engine]:
    """Node n1, whose neighbour n2 has told its MAC."""
    facts = Facts()
    known = (
        AgentConfig(antrea_proxy=proxy, traffic_encap_mode=mode),
        ThisNode("n1", CIDRS["n1"], OWN, OWN),
        OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:02"),
        Transport("eth0", "eth0", MACS["n1"], 1500, networks),
        EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy", GATE})),
        *(
            AgentNode(name, ips, ips, pod_cidrs=CIDRS[name], mac=MACS[name])
            for name, ips in (("n1", OWN), ("n2", HOST))
        ),
    )
    for row in (*known, *rows):
        facts.put(row)
    return facts, Engine(facts, UNITS)


def standing(engine: Engine) -> list[Any]:
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    return list(engine.standing().values())


@pytest.mark.parametrize("by_default", [False, True])
@pytest.mark.parametrize(
    ("mode", "networks", "told"),
    [
        ("encap", ("192.0.2.1/24",), 0),
        ("noEncap", ("192.0.2.1/24", "2001:db8:2::1/64"), 0),
        ("noEncap", ("192.0.2.1/24", "2001:db8:9::1/64"), 1),
        ("noEncap", ("198.18.0.1/24",), 1),
    ],
)
def test_a_service_that_asks_for_it_is_told_of_nodes_behind_routers(
    mode: Literal["encap", "noEncap"], networks: tuple[str, ...], told: int, by_default: bool
) -> None:
    asks = WEB if by_default else msgspec.structs.replace(WEB, mode="dsr")
    proxy = msgspec.structs.replace(ALL, default_load_balancer_mode="dsr" if by_default else "nat")
    _, engine = world(asks, mode=mode, networks=networks, proxy=proxy)
    acts = [act for act in engine.plan().acts if isinstance(act, ModeUnavailable)]
    assert len(acts) == told
    said = "routers before n2: packets that cross them are served in mode nat"
    assert all(said in act.message for act in acts)


def test_the_host_passes_packets_on_and_knows_those_of_other_nodes() -> None:
    found = standing(world(msgspec.structs.replace(WEB, mode="dsr"))[1])
    hops = {one.key: one for one in found if isinstance(one, NftHops)}
    assert [(one.dev, one.out, one.hops) for _, one in sorted(hops.items())] == [
        ("antrea-gw0", "eth0", (("02:eb:00:00:00:01", HOST[0]),)),
        ("antrea-gw0", "eth0", (("02:eb:00:00:00:01", HOST[1]),)),
    ]
    raw = [one.text for one in found if isinstance(one, NftRule) and "passed on to" in one.name]
    assert sorted(text for text in raw if "ip6" not in text) == [
        'iifname "eth0" ether saddr @peer-node-mac ip daddr @external-ip meta mark set meta mark | 0x20000000 notrack',
        (
            'iifname "eth0" ether saddr @peer-node-mac ip daddr @peer-node-ip meta l4proto . th dport @direct-node-port'
            " meta mark set meta mark | 0x20000000 notrack"
        ),
    ]
    elements = {(one.set, one.value) for one in found if isinstance(one, NftElement)}
    assert ("peer-node-mac", MACS["n2"]) in elements
    rules = {(one.family, one.mark, one.table) for one in found if isinstance(one, RoutingRule)}
    assert rules == {(4, 0x20000000, 100), (6, 0x20000000, 100)}
    away = {(one.dst, one.via) for one in found if isinstance(one, Route) and one.table == 100}
    assert away == {("0.0.0.0/0", "169.254.0.249"), ("::/0", "fc01::aabb:ccdd:eefb")}
    (told,) = (one for one in found if isinstance(one, NodeAnnotation) and one.name == LINK)
    assert told.value == "02:00:00:00:00:01 192.0.2.1/24 2001:db8:2::1/64"


def test_with_tunnels_nothing_of_this_is_on_the_host() -> None:
    found = standing(world(msgspec.structs.replace(WEB, mode="dsr"), mode="encap")[1])
    kinds = NftHops | RoutingRule
    assert not [one for one in found if isinstance(one, kinds)]
    assert not [one for one in found if isinstance(one, NftElement) and one.set == "peer-node-mac"]
    (told,) = (one for one in found if isinstance(one, NodeAnnotation) and one.name == LINK)
    assert told.value == ""


@pytest.mark.parametrize("unknown", ["this", "other", "far", "address"])
def test_endpoints_to_which_no_packet_gets_as_it_came_are_not_marked_as_remote(unknown: str) -> None:
    facts, engine = world(msgspec.structs.replace(WEB, mode="dsr"), REMOTE)

    def buckets() -> list[str]:
        return [str(one) for one in standing(engine) if isinstance(one, Group) and "0x1f90" in str(one)]

    mark = "set_field:0x4000000/0x4000000->reg4"
    before = buckets()
    assert before
    assert all(mark in text for text in before)
    name = "n1" if unknown == "this" else "n2"
    row = facts.get(AgentNode, name)
    assert row is not None
    if unknown == "address":
        facts.drop(ServiceEndpoint, REMOTE.key)
        facts.put(msgspec.structs.replace(REMOTE, ip="203.0.113.5"))
    elif unknown == "far":
        facts.put(msgspec.structs.replace(row, ips=("198.18.0.2",), transport_ips=("198.18.0.2",)))
    else:
        facts.put(msgspec.structs.replace(row, mac=""))
    after = buckets()
    assert after
    assert not [text for text in after if mark in text]
    if unknown != "address":
        hops = [one for one in standing(engine) if isinstance(one, NftHops)]
        assert not [hop for one in hops for hop in one.hops]


@pytest.mark.parametrize(
    ("text", "mac"),
    [
        ("02:00:00:00:00:01 192.0.2.1/24", "02:00:00:00:00:01"),
        ("02:00:00:00:00:01", "02:00:00:00:00:01"),
        ("", ""),
        ("ff:ff:ff:ff:ff:ff", ""),
        ("01:00:5e:00:00:01 192.0.2.1/24", ""),
        ("00:00:00:00:00:00", ""),
        ("02:00:00:00:00:01, drop", ""),
        ("02-00-00-00-00-01", ""),
        ("192.0.2.1/24", ""),
        ("02:00:00:00:00:01 } ; flush ruleset", "02:00:00:00:00:01"),
    ],
)
def test_of_what_a_node_may_write_into_its_annotation_only_a_mac_of_one_host_counts(
    text: str, mac: str
) -> None:
    meta = core.ObjectMeta(name="n2", annotations={LINK: text})
    status = core.NodeStatus(addresses=(core.NodeAddress("InternalIP", HOST[0]),))
    row = cluster_node(
        core.Node(metadata=meta, spec=core.NodeSpec(pod_cidrs=("10.10.1.0/24",)), status=status)
    )
    assert row is not None
    assert row.mac == mac


@pytest.mark.parametrize("ipv6", [False, True])
def test_where_nft_refuses_the_hops_of_a_family_its_packets_are_translated_and_the_node_is_told(
    ipv6: bool,
) -> None:
    """The rule that drops what is for no Node stands all the same."""
    facts, engine = world(msgspec.structs.replace(WEB, mode="dsr"))
    assert direct(standing(engine)) == {False: True, True: True}
    assert refusal_text(facts) == ""
    facts.put(Unrealized(HOP_UNITS[ipv6].name, "self", "No such file or directory"))
    plan = engine.plan()
    (told,) = [act for act in plan.acts if isinstance(act, PathRefused)]
    assert told.message == refusal_text(facts)
    family = ("IPv4", "IPv6")[ipv6]
    assert (
        f"the rules of {family} that pass packets on to other Nodes (No such file or directory)"
        in told.message
    )
    assert f"nft_dup_{family.lower()} and interface eth0" in told.message
    found = standing(engine)
    assert direct(found) == {ipv6: False, not ipv6: True}
    assert sum(isinstance(one, NftHops) for one in found) == 2
    assert any(isinstance(one, NftRule) and one.name == "no Node that is not known" for one in found)
    facts.replace(Unrealized, [])
    assert direct(standing(engine)) == {False: True, True: True}


def direct(entries: list[Any]) -> dict[bool, bool]:
    """By family, whether the switch hands packets back to the host for Node n2."""
    shown = [one for one in entries if isinstance(one, Flow) and HOP in " ".join(one.actions)]
    return {ipv6: any(("ipv6" in one.match) == ipv6 for one in shown) for ipv6 in (False, True)}


def test_hops_are_made_anew_for_a_card_that_was_made_anew_under_its_name() -> None:
    facts, engine = world()
    facts.put(LocalLink("eth0", 7))
    assert {one.instance for one in standing(engine) if isinstance(one, NftHops)} == {7}
    facts.put(LocalLink("eth0", 9))
    assert {one.instance for one in engine.plan().put if isinstance(one, NftHops)} == {9}
    facts.drop(LocalLink, "eth0")
    assert {one.instance for one in engine.plan().put if isinstance(one, NftHops)} == {0}
