"""Which Node answers for the external IP of a Service; cases of upstream's agent, TestCreateService and nodesHasHealthyServiceEndpoint."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from external_ip_node import IP, IP6, NODES, Node, endpoints, service

from antrea.apis.crd.part import LabelSelector
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.facts.egress import Egress, ProbedAddress
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, Quorum
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.hash_ring import ring
from antrea.features.egress.agent.owner import NO_MAJORITY
from antrea.features.external_ip_pool.duplicate import ProbeAddress, sentence
from antrea.features.framework.gate import EnabledGates
from antrea.features.grouping.selector import requirements
from antrea.features.service_external_ip.agent import (
    NOT_TAKEN,
    TAKEN,
    AnnounceExternalIP,
    RecordExternalIPConflict,
    RecordSubnetIgnored,
)
from antrea.features.service_external_ip.owner import NO_ENDPOINT, NO_NODE, NO_POOL
from antrea.features.service_external_ip.unanswered import RecordUnanswered
from antrea.host.neighbour_response import NeighbourResponse
from antrea.host.route import RoutingRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.facts.service import Service

    Conditions = Mapping[str, bool | None]

MAC = "0a:00:00:00:00:99"


def picked(*nodes: str, ip: str = IP) -> str:
    return ring(frozenset(nodes)).pick(ip)


def test_the_node_that_upstreams_hash_picks_answers_and_announces_once_and_no_other() -> None:
    for me in NODES:
        node = Node(me)
        node.put(service())
        node.plan()
        ours = me == picked(*NODES)
        announced = [
            (act.dev, act.ip, act.service) for act in node.acts if isinstance(act, AnnounceExternalIP)
        ]
        assert announced == ([("eth0", IP, "shop/web")] if ours else [])
        assert (node.owner(), node.answers()) == (picked(*NODES), [("eth0", IP)] if ours else [])


def test_a_node_that_is_lost_or_leaves_or_is_cordoned_hands_the_address_to_the_next() -> None:
    first = picked(*NODES)
    rest = tuple(name for name in NODES if name != first)
    node = Node(rest[0])
    node.put(service())
    assert node.owner() == first
    for row in (GossipMember(first, alive=False), GossipMember(first, alive=True, left=True)):
        node.put(row)
        assert node.owner() == picked(*rest)
    node.put(GossipMember(first, alive=True), AgentNode(first, ("192.0.2.9",), ("192.0.2.9",), cordoned=True))
    assert node.owner() == picked(*rest)
    node.put(AgentNode(first, ("192.0.2.9",), ("192.0.2.9",)))
    assert node.owner() == first


def test_preferred_nodes_answer_in_their_order_as_long_as_they_can() -> None:
    node = Node()
    least = next(name for name in NODES if name != picked(*NODES))
    node.put(service(preferred=f"gone, {least}, {picked(*NODES)}"))
    assert node.owner() == least
    node.put(AgentNode(least, ("192.0.2.9",), ("192.0.2.9",), cordoned=True))
    assert node.owner() == picked(*NODES)
    node.put(AgentNode(least, ("192.0.2.9",), ("192.0.2.9",)))
    assert node.owner() == least
    other = next(name for name in NODES if name != least)
    node.put(
        service(preferred=least, externalTrafficPolicy="Local"), *endpoints("web", {other: {"ready": True}})
    )
    assert node.owner() == other


def test_of_services_that_share_an_address_the_oldest_that_names_nodes_decides() -> None:
    node = Node()
    node.put(
        service("any", created="1"),
        service("old", created="2", preferred="n2"),
        service("new", created="3", preferred="n3"),
    )
    assert [node.owner(name) for name in ("any", "old", "new")] == ["n2"] * 3


def conflicts(node: Node) -> list[str]:
    node.plan()
    return [act.message for act in node.acts if isinstance(act, RecordExternalIPConflict)]


def test_a_new_address_is_answered_for_once_no_other_host_has_it() -> None:
    node = Node(picked(*NODES))
    node.duplicates[IP] = MAC
    node.put(service())
    assert (node.answers(), conflicts(node)) == ([], [f"{sentence(IP, MAC)}; Node {node.me} {NOT_TAKEN}"])
    node.put(ProbedAddress("shop/web", IP))
    assert (node.answers(), len(conflicts(node))) == ([("eth0", IP)], 1)
    # in use: reported, and kept
    node.put(ProbedAddress("shop/web", IP, MAC))
    assert (node.answers(), conflicts(node)[1:]) == (
        [("eth0", IP)],
        [f"{sentence(IP, MAC)}; Node {node.me} {TAKEN}"],
    )


def test_a_service_whose_pool_has_a_vlan_says_that_it_is_announced_elsewhere() -> None:
    node = Node(picked(*NODES))
    node.put(service(), PoolSelector("p", (), "203.0.113.1", 24, 181))
    assert node.answers() == [("eth0", IP)]
    (told,) = (act.message for act in node.acts if isinstance(act, RecordSubnetIgnored))
    assert told.startswith(f"{IP} is announced on eth0, not in VLAN 181 of ExternalIPPool p")


def test_a_service_of_a_pool_with_a_vlan_is_answered_for_there() -> None:
    node = Node(picked(*NODES))
    gates = EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"}))
    node.put(service(), PoolSelector("p", (), "192.0.2.254", 24, 181), AgentConfig(), gates)
    assert node.answers() == [("antrea-ext.181", IP)]
    assert not [act for act in node.acts if isinstance(act, RecordSubnetIgnored)]
    rules = [one for one in node.engine.standing().values() if isinstance(one, RoutingRule)]
    assert [(rule.mark, rule.mask, rule.table) for rule in rules] == [(0x10000, 0x1F0000, 101)]


@pytest.mark.parametrize("proxy_all", [True, False])
def test_a_node_that_answered_in_a_vlan_keeps_the_way_back_for_connections_that_are_relayed_to_it(
    *, proxy_all: bool
) -> None:
    node = Node("n1")
    gates = EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"}))
    config = AgentConfig(antrea_proxy=AntreaProxy(proxy_all=proxy_all))
    node.put(service(preferred="n1"), PoolSelector("p", (), "192.0.2.254", 24, 181), config, gates)
    assert node.answers() == [("antrea-ext.181", IP)]
    node.put(service(preferred="n2"))
    assert node.answers() == []
    rules = [one for one in node.engine.standing().values() if isinstance(one, RoutingRule)]
    assert len(rules) == proxy_all


def test_an_address_that_another_node_answered_for_is_taken_over_without_delay() -> None:
    first = picked(*NODES)
    node = Node(picked(*(name for name in NODES if name != first)))
    node.put(service())
    assert (node.owner(), node.answers()) == (first, [])
    node.put(GossipMember(first, alive=False))
    plan = node.engine.plan()
    assert [one.ip for one in plan.put if isinstance(one, NeighbourResponse)] == [IP]
    (asked,) = (act for act in plan.acts if isinstance(act, ProbeAddress))
    assert not asked.before


def test_without_a_majority_without_a_pool_and_without_a_node_nobody_answers() -> None:
    node = Node(picked(*NODES))
    node.put(service(), Quorum(has=False, alive=1, of=3))
    assert (node.owner(), node.answers()) == (NO_MAJORITY, [])
    node.facts.drop(PoolSelector, "p")
    assert node.owner() == NO_POOL.format("p")
    for name in NODES:
        node.put(GossipMember(name, alive=False))
        node.facts.drop(AgentNode, name)
    node.put(PoolSelector("p", ()))
    assert node.owner() == NO_NODE
    for name in NODES:
        node.put(GossipMember(name, alive=name != node.me), AgentNode(name, ("192.0.2.9",), ("192.0.2.9",)))
    node.put(Quorum(has=True, alive=3, of=3))
    assert (node.owner(), node.answers()) == (node.me, [("eth0", IP)])


READY, UNREADY = {"ready": True, "serving": True}, {"ready": False, "serving": False}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"n1": READY, "n2": READY, "n3": READY}, NODES),
        ({"n1": READY, "n2": UNREADY}, ("n1",)),
        ({"n3": {"ready": None}}, ("n3",)),
        ({"n2": {"ready": False, "serving": True}}, ("n2",)),
        ({"n1": UNREADY, "n2": UNREADY}, ()),
        ({}, ()),
    ],
)
@pytest.mark.parametrize("ports", [(), (80, 443)])
def test_with_local_policy_only_a_node_with_an_endpoint_that_serves_answers(
    nodes: Mapping[str, Conditions], expected: tuple[str, ...], ports: tuple[int, ...]
) -> None:
    node = Node()
    node.put(service(externalTrafficPolicy="Local"), *endpoints("web", nodes, ports=ports))
    assert node.owner() == (picked(*expected) if expected else NO_ENDPOINT)


def test_endpoints_of_the_other_family_do_not_count() -> None:
    node = Node()
    node.put(service(ip=IP6, externalTrafficPolicy="Local"), *endpoints("web", {"n2": READY}))
    assert node.owner() == NO_ENDPOINT
    node.put(*endpoints("web", {"n3": READY}, "IPv6"))
    assert node.owner() == "n3"


def test_services_that_share_an_address_have_one_node() -> None:
    node = Node()
    shared = {"externalTrafficPolicy": "Local"}
    node.put(service("web", **shared), service("api", **shared), service("any"))
    node.put(*endpoints("web", {"n1": READY, "n2": READY}), *endpoints("api", {"n2": READY, "n3": READY}))
    assert [node.owner(name) for name in ("web", "api", "any")] == ["n2"] * 3
    node.put(*endpoints("web", {"n1": READY, "n2": UNREADY}))
    assert len({node.owner(name) for name in ("web", "api", "any")}) == 1


def test_an_address_that_is_no_longer_of_a_pool_is_not_answered_for() -> None:
    node = Node(picked(*NODES))
    node.put(service())
    assert node.answers() == [("eth0", IP)]
    node.put(service(pool=""))
    assert node.answers() == []
    node.put(service(type="ClusterIP"))
    assert node.answers() == []
    node.put(service(loadBalancerClass="metallb.io/l2"))
    assert node.answers() == []


def test_an_egress_by_hand_with_the_address_of_a_service_does_not_leave_with_it() -> None:
    node = Node()
    egress = Egress("e", "u", IP, pool="p")
    node.put(egress, PoolSelector("p", (), ranges=((4, int(ip_address(IP)), int(ip_address(IP))),)))
    assert unallocated_reason(node.facts, egress) == ""
    node.put(service())
    assert unallocated_reason(node.facts, egress) == f"Service shop/web has {IP} of ExternalIPPool p"
    node.put(service(pool="other"))
    assert unallocated_reason(node.facts, egress) == ""


def dual(**more: Any) -> Service:
    return msgspec.structs.replace(service(**more), load_balancer_ips=(IP6, IP), external_ips=(IP6, IP))


def test_each_address_of_a_dual_stack_service_is_answered_for_by_its_own_node() -> None:
    homes = {ip: picked(*NODES, ip=ip) for ip in (IP, IP6)}
    assert len({*homes.values()}) == 2
    for me in NODES:
        node = Node(me)
        node.put(dual())
        assert node.answers() == [("eth0", ip) for ip in homes if homes[ip] == me]
        rows = {row.key: (row.ip, row.node) for row in node.facts.all(ExternalIPOwner)}
        assert rows == {"shop/web": (IP, homes[IP]), "shop/web 1": (IP6, homes[IP6])}


def test_an_address_of_a_dual_stack_service_that_another_host_has_leaves_the_other_alone() -> None:
    node = Node("n1")
    node.duplicates = {IP6: MAC}
    node.put(dual(preferred="n1"))
    assert node.answers() == [("eth0", IP)]
    assert conflicts(node) == [f"{sentence(IP6, MAC)}; Node n1 {NOT_TAKEN}"]
    node.put(ProbedAddress("shop/web 1", IP6))
    assert node.answers() == [("eth0", IP), ("eth0", IP6)]


def test_with_local_policy_each_address_goes_where_its_family_has_endpoints() -> None:
    node = Node("n1")
    node.put(dual(externalTrafficPolicy="Local"))
    node.put(*endpoints("web", {"n2": {"ready": True}}), *endpoints("web", {"n3": {"ready": True}}, "IPv6"))
    node.plan()
    assert {row.ip: row.node for row in node.facts.all(ExternalIPOwner)} == {IP: "n2", IP6: "n3"}


def test_each_address_is_of_the_pool_that_has_it() -> None:
    node = Node("n1")
    for pool, ip, name in (("four", IP, "n2"), ("six", IP6, "n3")):
        address = ip_address(ip)
        label = requirements(LabelSelector(match_labels={"pool": pool}))
        node.put(PoolSelector(pool, label, ranges=((address.version, int(address), int(address)),)))
        node.put(AgentNode(name, ("192.0.2.9",), ("192.0.2.9",), labels=(("pool", pool),)))
    node.put(dual(pool="four,six"))
    node.plan()

    def owners() -> dict[str, tuple[str, str]]:
        node.plan()
        return {row.ip: (row.pool, row.node) for row in node.facts.all(ExternalIPOwner)}

    assert owners() == {IP: ("four", "n2"), IP6: ("six", "n3")}
    # its Nodes are those of the pool that is gone, not of the other one
    node.facts.drop(PoolSelector, "six")
    assert owners() == {IP: ("four", "n2"), IP6: ("six", "")}


def test_while_all_nodes_of_the_pool_are_gone_nobody_answers_and_one_does_once_they_are_back() -> None:
    node = Node("n1")
    node.put(PoolSelector("p", requirements(LabelSelector(match_labels={"egress": "yes"}))), service())
    labelled = [AgentNode(name, ("192.0.2.9",), (), labels=(("egress", "yes"),)) for name in ("n2", "n3")]
    node.put(*labelled)
    assert node.owner() == picked("n2", "n3")
    node.put(*(GossipMember(name, alive=False) for name in ("n2", "n3")))
    assert node.owner() == NO_NODE
    node.put(*(GossipMember(name, alive=True) for name in ("n2", "n3")))
    assert node.owner() == picked("n2", "n3")
    # gone with their objects
    for one in labelled:
        node.facts.drop(AgentNode, one.name)
    node.facts.drop(PoolSelector, "p")
    assert node.owner() == NO_POOL.format("p")
    node.put(PoolSelector("p", ()))
    assert node.owner() == "n1"


def unanswered(node: Node) -> list[str]:
    """Messages so far."""
    node.plan()
    return [act.message for act in node.acts if isinstance(act, RecordUnanswered)]


def test_one_agent_of_all_says_that_no_node_answers() -> None:
    gone = PoolSelector("p", requirements(LabelSelector(match_labels={"no": "such"})))
    for me in NODES:
        node = Node(me)
        node.put(service(), *endpoints("web", {"n2": {"ready": True}}))
        assert unanswered(node) == []
        node.put(gone)
        told = [f"no Node answers for {IP}: {NO_NODE}"] if me == "n1" else []
        assert unanswered(node) == told
        node.put(PoolSelector("p", ()), service(externalTrafficPolicy="Local"))
        assert unanswered(node) == told
        node.put(*endpoints("web", {"n2": {"ready": False}}))
        assert unanswered(node) == told, "who does not tell serves"
        node.put(*endpoints("web", {"n2": {"ready": False, "serving": False}}))
        local = [f"no Node answers for {IP}: {NO_ENDPOINT}"] if me == "n1" else []
        assert unanswered(node) == told + local
    # the next one, once the first is dead; and none that is alone
    node = Node("n2")
    node.put(service(), gone, GossipMember("n1", alive=False))
    assert unanswered(node) == [f"no Node answers for {IP}: {NO_NODE}"]
    alone = Node("n1")
    alone.put(Quorum(has=False, alive=1, of=3), service(), gone)
    assert unanswered(alone) == []
