"""What happens to Pods while their policies stand: another takes the port, the address changes, peers are gone, a family is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from policy_oracle import FAR, LOCAL, Packet, Pod, entry, ports, sent_to
from policy_switch import CONFIG, FEATURES, GATEWAY, NODE, PEER, PIPELINE, TUNNEL

from antrea.engine import Engine, Facts
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.received import SentAddressMember
from tests.unit.features.policy_world import (
    addresses,
    applied,
    block,
    interface,
    member,
    native,
    peer,
    policy,
    port,
    rule,
)

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.facts.fact import Fact

WEB, NEAR, OTHER = LOCAL[0], LOCAL[1], LOCAL[2]
CLIENT = FAR[0]


class Node:
    """Pods of this Node and what its agent makes of what it was told, in a real switch."""

    def __init__(self, ovs: OvsBridge) -> None:
        self.ovs = ovs
        self.facts = Facts()
        for pool, low, high in POLICY.ranks:
            self.facts.ids.between(pool, low, high)
        self.put(CONFIG, NODE, PEER, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE))
        self.engine = Engine(self.facts, [unit for feature in FEATURES for unit in feature.units])

    def put(self, *rows: Fact) -> None:
        for row in rows:
            self.facts.put(row)

    def pod(self, one: Pod, *ips: str) -> None:
        self.put(interface(one.name, one.number, *(ips or one.ips)))

    def enforce(self) -> None:
        self.engine.plan()
        assert not self.engine.errors.standing
        self.ovs.clear()
        self.ovs.install(self.engine.standing().values(), PIPELINE)

    def reaches(
        self, source: Pod, to: Pod, number: int = 80, protocol: str = "TCP", *, v6: bool = False
    ) -> bool:
        return sent_to(self.ovs, entry(Packet(source, to, v6, protocol, number))) == to.number

    def families(self, source: Pod, to: Pod) -> tuple[bool, bool]:
        """Whether it reaches in IPv4 and in IPv6."""
        return self.reaches(source, to), self.reaches(source, to, v6=True)


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


@pytest.fixture
def node(bridge: OvsBridge) -> Node:
    found = Node(bridge)
    for one in (WEB, NEAR):
        found.pod(one)
    return found


def test_who_takes_the_port_of_another_at_once_has_none_of_its_rules(node: Node) -> None:
    heir = Pod("heir", ("10.10.0.99", "fd00:10::63"), WEB.number, 0)
    node.put(policy("p", "g", rule("In", peer("none"))), *applied("g", WEB.told))
    node.enforce()
    assert node.families(NEAR, WEB) == (False, False)
    node.facts.drop(PodInterface, interface(WEB.name, WEB.number).key)
    node.pod(heir)
    node.enforce()
    assert node.families(NEAR, heir) == (True, True)
    node.put(*applied("g", heir.told))
    node.enforce()
    assert node.families(NEAR, heir) == (False, False)


def test_a_pod_that_changes_its_addresses_keeps_its_rules_and_nobody_has_those_of_its_old_ones(
    node: Node,
) -> None:
    moved = WEB._replace(ips=("10.10.0.77", "fd00:10::4d"))
    node.put(native("p", "g", rule("Out", peer("peers"), action="Drop")), *applied("g", WEB.told))
    node.put(*addresses("peers", NEAR.told))
    node.enforce()
    assert node.families(WEB, NEAR) == (False, False)
    node.pod(moved, *moved.ips)
    node.pod(OTHER, *WEB.ips)
    node.enforce()
    assert node.families(moved, NEAR) == (False, False)
    assert node.families(OTHER._replace(ips=WEB.ips), NEAR) == (True, True)
    lies = Packet(WEB, NEAR, v6=False, protocol="TCP", port=80)  # from its old address
    assert sent_to(node.ovs, entry(lies)) == 0


def test_a_group_of_peers_that_shrinks_to_nothing_allows_and_denies_nobody(node: Node) -> None:
    """As when a Node is gone with its Pods."""
    gone = addresses("peers", CLIENT.told)
    node.put(policy("p", "g", rule("In", peer("peers"))), *applied("g", WEB.told), *gone)
    node.put(native("q", "h", rule("In", peer("peers"), action="Drop")), *applied("h", NEAR.told))
    node.enforce()
    assert node.families(CLIENT, WEB) == (True, True)
    assert node.families(CLIENT, NEAR) == (False, False)
    for row in gone:
        node.facts.drop(SentAddressMember, row.key)
    node.enforce()
    assert node.families(CLIENT, WEB) == (False, False)
    assert node.families(CLIENT, NEAR) == (True, True)


def test_a_group_of_protected_pods_that_shrinks_to_nothing_protects_nobody(node: Node) -> None:
    rows = applied("g", WEB.told)
    node.put(policy("p", "g", rule("In", peer("none"))), *rows)
    node.enforce()
    assert node.families(NEAR, WEB) == (False, False)
    node.facts.drop(type(rows[0]), rows[0].key)
    node.enforce()
    assert node.families(NEAR, WEB) == (True, True)


def test_a_pod_of_ipv6_alone_is_isolated_by_rules_of_ipv4_which_open_nothing_for_it(node: Node) -> None:
    node.pod(WEB, WEB.ips[1])
    only = member(WEB.name, WEB.ips[1])
    v4 = peer(blocks=(block("0.0.0.0/0"),))
    node.put(policy("p", "g", rule("In", v4), rule("Out", v4)), *applied("g", only))
    node.enforce()
    assert not node.reaches(NEAR, WEB, v6=True)
    assert not node.reaches(WEB, NEAR, v6=True)
    both = peer(blocks=(block("0.0.0.0/0"), block("fd00:10::/64")))
    node.put(policy("p", "g", rule("In", both), rule("Out", both)))
    node.enforce()
    assert node.reaches(NEAR, WEB, v6=True)
    assert node.reaches(WEB, NEAR, v6=True)
    node.put(native("q", "g", rule("In", v4, action="Drop")))
    node.enforce()
    assert node.reaches(NEAR, WEB, v6=True)


def test_of_rules_that_contradict_each_other_the_order_decides_and_not_who_came_first(node: Node) -> None:
    node.put(*applied("g", WEB.told), *addresses("peers", NEAR.told))
    node.put(native("late", "g", rule("In", peer("peers"), action="Drop"), priority=6.0))
    node.put(native("early", "g", rule("In", peer("peers"), action="Allow"), priority=5.0))
    node.enforce()
    assert node.families(NEAR, WEB) == (True, True)
    node.put(native("early", "g", rule("In", peer("peers"), action="Allow"), priority=7.0))
    node.enforce()
    assert node.families(NEAR, WEB) == (False, False)
    node.put(native("late", "g", rule("In", peer("peers"), action="Drop"), priority=7.0))
    node.enforce()  # same age: the smaller UID
    assert node.families(NEAR, WEB) == (True, True)


def test_a_rule_with_ten_thousand_ports_stands(node: Node) -> None:
    many = [port(number) for number in range(2, 20_002, 2)]
    node.put(policy("p", "g", rule("In", peer("peers"), *many)), *applied("g", WEB.told))
    node.put(*addresses("peers", NEAR.told))
    node.enforce()
    odd = {number: node.reaches(NEAR, WEB, number) for number in (2, 3, 9_998, 9_999, 20_000, 20_001)}
    assert odd == {2: True, 3: False, 9_998: True, 9_999: False, 20_000: True, 20_001: False}
    assert not node.reaches(NEAR, WEB, 2, "UDP")
    assert node.reaches(NEAR, WEB, 20_000, v6=True)
