"""In which networks a Node asks whether it is heard, and what follows if it is not."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec
import pytest
from external_ip_node import IP, IP6, NODES, Node, service

from antrea.apis.annotation import SILENT_SUBNETS, NodeAnnotation
from antrea.apis.crd.part import LabelSelector
from antrea.config.agent import AgentConfig
from antrea.facts.external_ip import AnsweringNetwork
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, SilenceReport
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.hash_ring import ring
from antrea.features.egress.agent.takeover_event import cause
from antrea.features.external_ip_pool.silence import ReportSilence, found_silent
from antrea.features.framework.gate import EnabledGates
from antrea.features.grouping.selector import requirements
from antrea.features.service_external_ip.network import AskedNetwork, RecordUnheard, asked_networks

NETWORK, NETWORK6 = "192.0.2.0/24", "2001:db8::/64"
RANGES = ((4, int(ip_address("192.0.2.40")), int(ip_address("192.0.2.49"))),)
FIRST = ring(frozenset(NODES)).pick(IP)
SECOND = ring(frozenset(NODES) - {FIRST}).pick(IP)
HERE = AnsweringNetwork("eth0", NETWORK, answers=True, targets=("192.0.2.254",))
SILENT = msgspec.structs.replace(HERE, answers=False)
UNHEARD = msgspec.structs.replace(HERE, unheard=IP)


def world(me: str = FIRST, ip: str = IP) -> Node:
    """The address is in a network of eth0, beside a wider one and another."""
    node = Node(me)
    node.facts.synced(PoolSelector)
    for number, name in enumerate(NODES, 1):
        node.put(AgentNode(name, (f"192.0.2.{number}", f"2001:db8::{number}"), (f"10.9.9.{number}",)))
    node.put(AgentConfig())
    node.put(
        LocalAddress("192.0.2.1", "eth0", 24), LocalAddress("10.0.0.1", "eth1", 8),
        LocalAddress("2001:db8::1", "eth0", 64), LocalAddress("192.0.9.1", "eth2", 16),
    )  # fmt: skip
    node.put(PoolSelector("p", (), ranges=RANGES), service(ip=ip))
    node.plan()
    return node


def step(node: Node, row: AnsweringNetwork | None) -> str:
    """The Node with the address once the feed has written this row, and the part what is reported."""
    node.facts.replace(AnsweringNetwork, [row] if row else [])
    node.acts.clear()
    node.plan()
    if any(isinstance(act, ReportSilence) for act in node.acts):
        node.put(SilenceReport(node.me, found_silent(node.facts)))
    return node.owner()


@pytest.mark.parametrize(("ip", "network", "nodes"), [
    (IP, NETWORK, "192.0.2.{}"), (IP6, NETWORK6, "2001:db8::{}"),
])  # fmt: skip
def test_all_nodes_of_a_pool_ask_in_the_network_of_its_addresses_and_the_owner_as_them(
    ip: str, network: str, nodes: str
) -> None:
    for me in NODES:
        node = world(me, ip)
        others = sorted((name for name in NODES if name != me), key=lambda name: (name < me, name))
        expected = AskedNetwork(
            "eth0", network, tuple(nodes.format(name[1]) for name in others), (ip,) if node.owner() == me else (), False
        )  # fmt: skip
        assert asked_networks(node.facts) == [expected]


def test_nobody_asks_for_others_pools_nor_far_networks_nor_dead_nodes() -> None:
    node = world()
    node.put(GossipMember(SECOND, alive=False))
    (asked,) = asked_networks(node.facts)
    assert len(asked.nodes) == 1
    node.put(PoolSelector("p", requirements(LabelSelector(match_labels={"egress": "yes"})), ranges=RANGES))
    node.plan()
    assert asked_networks(node.facts) == []
    node.put(PoolSelector("p", (), ranges=RANGES), service(ip="203.0.113.9"))
    node.plan()
    assert asked_networks(node.facts) == []


def test_where_a_pool_names_its_gateway_that_one_is_asked_as_long_as_the_gates_are_on() -> None:
    node = world()
    node.put(PoolSelector("p", (), "192.0.2.254", 24, 0, RANGES))
    node.plan()
    assert len(asked_networks(node.facts)) == 1
    node.put(EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet", "ServiceExternalIP"})))
    assert asked_networks(node.facts) == []


@pytest.mark.parametrize(("row", "text"), [
    (SILENT, f"no neighbour answers Node {FIRST} in {NETWORK} on eth0, probed at 192.0.2.254: "),
    (UNHEARD, f"neighbours in {NETWORK} answer Node {FIRST} on eth0, but no longer as {IP}: its switch port has to pass ARP"),
])  # fmt: skip
def test_a_node_that_is_not_heard_gives_its_addresses_up_whatever_the_api_shows_and_takes_them_back(
    row: AnsweringNetwork, text: str
) -> None:
    node = world()
    assert step(node, HERE) == FIRST
    assert step(node, row) == SECOND
    (event,) = (act for act in node.acts if isinstance(act, RecordUnheard))
    assert event.message.startswith(text)
    assert event.message.endswith(
        "as long as other Nodes can, they answer for the external IPs of Services in it"
    )
    # its annotation is never written, and it is open for a while whether somebody answers
    own = node.facts.get(AgentNode, FIRST)
    assert own is not None
    assert own.silent == ()
    assert step(node, None) == SECOND
    assert asked_networks(node.facts)[0].silent
    (annotation,) = (
        one
        for one in node.engine.standing().values()
        if isinstance(one, NodeAnnotation) and one.name == SILENT_SUBNETS
    )
    assert annotation.value == NETWORK
    assert step(node, HERE) == FIRST


def test_others_take_them_by_its_report_and_by_its_annotation_and_say_why() -> None:
    node = world(SECOND)
    assert node.owner() == FIRST
    before = node.facts.get(AgentNode, FIRST)
    assert before is not None
    node.put(msgspec.structs.replace(before, silent=("junk", "192.0.2.0/33", NETWORK)))
    assert node.owner() == SECOND
    assert cause(node.facts, "p", (), SECOND, FIRST).why == f"unheard: in {NETWORK}"
    node.put(SilenceReport(FIRST, ()))
    assert node.owner() == FIRST
    node.put(SilenceReport(FIRST, (NETWORK,)), before)
    assert node.owner() == SECOND
    # networks in which the pool has no address count for nothing
    node.put(SilenceReport(FIRST, ("192.0.3.0/24", NETWORK6)))
    assert node.owner() == FIRST


def test_if_no_node_is_heard_the_address_stays_where_it_is() -> None:
    node = world()
    node.put(*(SilenceReport(name, (NETWORK,)) for name in NODES if name != FIRST))
    assert step(node, SILENT) == FIRST


def test_what_was_reported_before_counts_until_the_pools_are_known() -> None:
    node = world()
    own = node.facts.get(AgentNode, FIRST)
    assert own is not None
    node.put(msgspec.structs.replace(own, silent=(NETWORK,)))
    assert step(node, None) == SECOND
    node.facts.drop(PoolSelector, "p")
    node.plan()
    assert found_silent(node.facts) == ()


def test_nothing_is_reported_before_it_is_known_what_was_reported_last_and_of_which_pools() -> None:
    node = Node(FIRST)
    own = node.facts.get(AgentNode, FIRST)
    assert own is not None
    node.facts.drop(AgentNode, FIRST)
    node.facts.synced(PoolSelector)

    def reported() -> bool:
        node.plan()
        standing = node.engine.standing().values()
        return any(isinstance(one, NodeAnnotation) and one.name == SILENT_SUBNETS for one in standing)

    assert not reported()
    node.put(own)
    assert reported()
    other = Node(FIRST)
    other.plan()
    assert not any(isinstance(act, ReportSilence) for act in other.acts)


def test_a_network_that_the_node_loses_with_its_cable_is_silent_until_it_is_back() -> None:
    node, here = world(), LocalAddress("192.0.2.1", "eth0", 24)
    (asked,) = asked_networks(node.facts)
    node.facts.drop(LocalAddress, here.key)
    node.put(LocalAddress("192.0.9.2", "eth1", 8))
    node.plan()
    assert [one.network for one in asked_networks(node.facts)] != [NETWORK]
    (lost,) = asked_networks(node.facts, [asked.key])
    assert lost == asked._replace(lost=True)
    assert step(node, AnsweringNetwork("eth0", NETWORK, answers=False)) == SECOND
    (event,) = (act for act in node.acts if isinstance(act, RecordUnheard))
    assert event.message.startswith(f"Node {FIRST} has no address in {NETWORK} on eth0 any more; ")
    node.put(here)
    assert step(node, HERE) == FIRST
