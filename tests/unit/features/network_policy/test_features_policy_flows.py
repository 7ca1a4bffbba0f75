"""Flows of Kubernetes NetworkPolicies, as text, and that each change costs what it must and no more."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest
from policy_world import (
    ANY,
    CONFIG,
    NODE,
    PIPELINE,
    WITHOUT,
    addresses,
    applied,
    block,
    engine_of,
    flows,
    interface,
    member,
    named,
    peer,
    pipeline,
    policy,
    port,
    rule,
)

from antrea.apis import controlplane as cp
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE
from antrea.features.network_policy.agent.match import masked_ports, networks
from antrea.openflow.action import CONJUNCTIONS
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB = interface("web", 7, "10.10.0.7")
DB = interface("db", 8, "10.10.0.8")


def lines(text: str) -> list[str]:
    return sorted(text.strip().splitlines())


# What upstream's TestBatchInstallPolicyRuleFlows expects of two egress rules, with our Pods and numbers.
TWO_EGRESS = """
table=EgressDefaultRule,priority=200,ip,nw_src=10.10.0.7 actions=drop
table=EgressDefaultRule,priority=200,ip,nw_src=10.10.0.8 actions=drop
table=EgressMetric,priority=200,ct_state=+new,ct_label=0x200000000/0xffffffff00000000,ip actions=goto_table:L3Forwarding
table=EgressMetric,priority=200,ct_state=+new,ct_label=0x300000000/0xffffffff00000000,ip actions=goto_table:L3Forwarding
table=EgressMetric,priority=200,ct_state=-new,ct_label=0x200000000/0xffffffff00000000,ip actions=goto_table:L3Forwarding
table=EgressMetric,priority=200,ct_state=-new,ct_label=0x300000000/0xffffffff00000000,ip actions=goto_table:L3Forwarding
table=EgressRule,priority=190,conj_id=2,ip actions=set_field:0x2->reg5,ct(commit,table=EgressMetric,zone=65520,exec(set_field:0x200000000/0xffffffff00000000->ct_label))
table=EgressRule,priority=190,conj_id=3,ip actions=set_field:0x3->reg5,ct(commit,table=EgressMetric,zone=65520,exec(set_field:0x300000000/0xffffffff00000000->ct_label))
table=EgressRule,priority=200,ip actions=conjunction(2,2/2),conjunction(3,2/3)
table=EgressRule,priority=200,ip,nw_src=10.10.0.7 actions=conjunction(2,1/2),conjunction(3,1/3)
table=EgressRule,priority=200,ip,nw_src=10.10.0.8 actions=conjunction(3,1/3)
table=EgressRule,priority=200,tcp,tp_dst=8080 actions=conjunction(3,3/3)
"""


def test_rules_that_share_a_match_share_its_flow() -> None:
    found = flows(
        WEB,
        DB,
        policy("one", "g1", rule("Out", ANY)),
        policy("two", "g2", rule("Out", ANY, port(8080))),
        *applied("g1", member("web")),
        *applied("g2", member("web"), member("db")),
        node=V4,
    )
    assert found == lines(TWO_EGRESS)


def test_what_does_not_fit_one_flow_stands_in_another_that_every_packet_meets_too() -> None:
    facts, engine = engine_of(V4, WEB, *applied("g", member("web")))
    facts.ids.start_above("conjunction", CONJUNCTIONS - 4)  # a number in flows is one more
    for number in range(1, 5):
        facts.put(policy(f"p{number}", "g", rule("Out", ANY, port(number))))
        engine.plan()
    found = [line for line in named(engine.standing().values()) if "conjunction(" in line]
    table, share = "table=EgressRule,priority=200", "reg10=0x0/0x1"
    assert found == [
        f"{table},ip actions=conjunction(3998,2/3),conjunction(3999,2/3)",
        f"{table},ip,nw_src=10.10.0.7 actions=conjunction(3998,1/3),conjunction(3999,1/3)",
        f"{table},ip,{share} actions=conjunction(4000,2/3),conjunction(4001,2/3)",
        f"{table},ip,{share},nw_src=10.10.0.7 actions=conjunction(4000,1/3),conjunction(4001,1/3)",
        f"{table},tcp,{share},tp_dst=3 actions=conjunction(4000,3/3)",
        f"{table},tcp,{share},tp_dst=4 actions=conjunction(4001,3/3)",
        f"{table},tcp,tp_dst=1 actions=conjunction(3998,3/3)",
        f"{table},tcp,tp_dst=2 actions=conjunction(3999,3/3)",
    ]


INGRESS = """
table=IngressDefaultRule,priority=200,reg1=0x7 actions=drop
table=IngressMetric,priority=200,ct_state=+new,ct_label=0x2/0xffffffff,ip actions=goto_table:ConntrackCommit
table=IngressMetric,priority=200,ct_state=+new,ct_label=0x2/0xffffffff,ipv6 actions=goto_table:ConntrackCommit
table=IngressMetric,priority=200,ct_state=-new,ct_label=0x2/0xffffffff,ip actions=goto_table:ConntrackCommit
table=IngressMetric,priority=200,ct_state=-new,ct_label=0x2/0xffffffff,ipv6 actions=goto_table:ConntrackCommit
table=IngressRule,priority=190,conj_id=2,ip actions=set_field:0x2->reg6,ct(commit,table=IngressMetric,zone=65520,exec(set_field:0x2/0xffffffff->ct_label))
table=IngressRule,priority=190,conj_id=2,ipv6 actions=set_field:0x2->reg6,ct(commit,table=IngressMetric,zone=65510,exec(set_field:0x2/0xffffffff->ct_label))
table=IngressRule,priority=200,ip,nw_src=10.0.0.0/31 actions=conjunction(2,1/3)
table=IngressRule,priority=200,ip,nw_src=10.0.0.3 actions=conjunction(2,1/3)
table=IngressRule,priority=200,ip,nw_src=10.10.1.5 actions=conjunction(2,1/3)
table=IngressRule,priority=200,ipv6,ipv6_src=fd00:10:1::5 actions=conjunction(2,1/3)
table=IngressRule,priority=200,reg1=0x7 actions=conjunction(2,2/3)
table=IngressRule,priority=200,sctp actions=conjunction(2,3/3)
table=IngressRule,priority=200,sctp6 actions=conjunction(2,3/3)
table=IngressRule,priority=200,tcp,tp_dst=0x1f90/0xfff8 actions=conjunction(2,3/3)
table=IngressRule,priority=200,tcp,tp_dst=0x1f98/0xfffe actions=conjunction(2,3/3)
table=IngressRule,priority=200,tcp,tp_dst=8090 actions=conjunction(2,3/3)
table=IngressRule,priority=200,tcp6,tp_dst=0x1f90/0xfff8 actions=conjunction(2,3/3)
table=IngressRule,priority=200,tcp6,tp_dst=0x1f98/0xfffe actions=conjunction(2,3/3)
table=IngressRule,priority=200,tcp6,tp_dst=8090 actions=conjunction(2,3/3)
"""


def test_an_ingress_rule_is_spelled_out_in_both_families_with_ranges_and_holes() -> None:
    other = peer("peers", blocks=[block("10.0.0.0/30", "10.0.0.2/32")])
    sctp = cp.Service(protocol="SCTP")
    found = flows(
        interface("web", 7),
        policy("one", "g", rule("In", other, port(8080, 8090), sctp)),
        *applied("g", member("web")),
        *addresses("peers", member("far", "10.10.1.5", "fd00:10:1::5")),
    )
    assert found == lines(INGRESS)


def test_a_policy_without_rules_isolates_and_makes_no_conjunction() -> None:
    nobody = cp.NetworkPolicyPeer()
    found = flows(
        interface("web", 7),
        policy("closed", "g", rule("In", nobody), rule("Out", nobody)),
        *applied("g", member("web")),
    )
    assert found == [
        "table=EgressDefaultRule,priority=200,ip,nw_src=10.10.0.7 actions=drop",
        "table=EgressDefaultRule,priority=200,ipv6,ipv6_src=fd00:10::7 actions=drop",
        "table=IngressDefaultRule,priority=200,reg1=0x7 actions=drop",
    ]


def numbers(found: list[str], table: str) -> dict[str, set[int]]:
    """Match -> ids of the conjunctions that it takes part in, of one table."""
    head = f"table={table},priority=200,"
    cut = [line.removeprefix(head).split(" actions=") for line in found if line.startswith(head)]
    return {match: {int(number) for number in re.findall(r"n\((\d+),", actions)} for match, actions in cut}


def test_a_named_port_means_each_pods_own_number() -> None:
    found = flows(
        *(
            interface(name, number, f"10.10.0.{number}")
            for name, number in (("a", 1), ("b", 2), ("c", 3), ("d", 4))
        ),
        policy("named", "g", rule("In", ANY, port("http"), port(443))),
        *applied("g", member("a", http=80), member("b", http=8080), member("c", http=80), member("d")),
        node=V4,
    )
    of = numbers(found, "IngressRule")
    assert of["reg1=0x1"] == of["reg1=0x3"] == of["tcp,tp_dst=80"]
    assert of["reg1=0x2"] == of["tcp,tp_dst=8080"]
    assert of["tcp,tp_dst=443"] == of["ip"] == of["reg1=0x1"] | of["reg1=0x2"] | of["reg1=0x4"]
    assert [len(of[f"reg1={n:#x}"]) for n in (1, 2, 3, 4)] == [1, 1, 1, 1]


def test_a_named_port_that_nobody_has_opens_nothing() -> None:
    found = flows(
        WEB, policy("named", "g", rule("In", ANY, port("http"))), *applied("g", member("web")), node=V4
    )
    assert found == ["table=IngressDefaultRule,priority=200,reg1=0x7 actions=drop"]


def test_a_named_port_of_an_egress_rule_is_the_peers_own() -> None:
    other = peer("peers", blocks=[block("192.0.2.0/24")])
    found = flows(
        WEB,
        policy("named", "g", rule("Out", other, port("http"), port(53, protocol="UDP"))),
        *applied("g", member("web")),
        *addresses(
            "peers",
            member("x", "10.10.1.1", http=80),
            member("y", "10.10.1.2", http=81),
            member("z", "10.10.1.3"),
        ),
        node=V4,
    )
    of = numbers(found, "EgressRule")
    (x,), (y,), (z,) = of["tcp,tp_dst=80"], of["tcp,tp_dst=81"], of["ip,nw_dst=192.0.2.0/24"]
    assert of == {
        "ip,nw_src=10.10.0.7": {x, y, z},
        "ip,nw_dst=10.10.1.1": {x},
        "ip,nw_dst=10.10.1.2": {y},
        "ip,nw_dst=10.10.1.3": {z},
        "ip,nw_dst=192.0.2.0/24": {z},
        "tcp,tp_dst=80": {x},
        "tcp,tp_dst=81": {y},
        "udp,tp_dst=53": {x, y, z},
    }
    assert len({x, y, z}) == 3


ALWAYS = """
table=IngressSecurityClassifier,priority=200,ct_mark=0x40/0x40 actions=goto_table:ConntrackCommit
table=IngressSecurityClassifier,priority=200,reg0=0x10/0xf0 actions=goto_table:IngressMetric
table=IngressSecurityClassifier,priority=200,reg0=0x20/0xf0 actions=goto_table:IngressMetric
table=IngressSecurityClassifier,priority=200,reg0=0x40/0xf0 actions=goto_table:IngressMetric
table=Output,priority=200,reg0=0x2400000/0xfe600000 actions=meter:256,controller(id=32776,reason=no_match,userdata=01.01,max_len=65535)
table=Output,priority=200,reg0=0x4400000/0xfe600000 actions=meter:256,controller(id=32776,reason=no_match,userdata=01.02,max_len=65535)
table=Output,priority=200,reg0=0x6400000/0xfe600000 actions=meter:256,controller(id=32776,reason=no_match,userdata=01.03,max_len=65535)
table=Output,priority=200,reg0=0x8400000/0xfe600000 actions=meter:256,controller(id=32776,reason=no_match,userdata=01.04,max_len=65535)
table=Output,priority=200,reg0=0xa400000/0xfe600000 actions=meter:256,controller(id=32776,reason=no_match,userdata=01.05,max_len=65535)
table=Output,priority=200,reg0=0xc400000/0xfe600000 actions=meter:256,controller(id=32776,reason=no_match,userdata=01.06,max_len=65535)
table=Output,priority=200,reg0=0xe400000/0xfe600000 actions=meter:256,controller(id=32776,reason=no_match,userdata=01.07,max_len=65535)
"""
ACCEPTED = """
table=TABLEEgressRule,priority=PRIORITY,ct_state=-new+est,ip actions=goto_table:EgressMetric
table=TABLEEgressRule,priority=PRIORITY,ct_state=-new+rel,ip actions=goto_table:EgressMetric
table=TABLEIngressRule,priority=PRIORITY,ct_state=-new+est,ip actions=goto_table:IngressMetric
table=TABLEIngressRule,priority=PRIORITY,ct_state=-new+rel,ip actions=goto_table:IngressMetric
"""
MARKED, OWN = (
    "pkt_mark=0x80000000/0x80000000,ct_state=-rpl+trk,ip",
    "ct_state=-rpl+trk,ip,dl_src=02:e9:80:00:00:00",
)


@pytest.mark.parametrize(
    ("config", "probe", "table", "priority"),
    [
        (CONFIG, MARKED, "AntreaPolicy", "64990"),
        (AgentConfig(ovs_datapath_type="netdev"), OWN, "AntreaPolicy", "64990"),
        (WITHOUT, MARKED, "", "210"),
    ],
    ids=["system", "netdev", "without Antrea's own"],
)
def test_a_node_without_policies_lets_its_own_probes_and_what_leaves_it_pass(
    config: AgentConfig, probe: str, table: str, priority: str
) -> None:
    facts = Facts()
    for row in (config, V4, RealizedPipeline(pipeline(config))):
        facts.put(row)
    engine = Engine(facts, FEATURE.units)
    own = f"table=IngressSecurityClassifier,priority=210,{probe} actions=goto_table:ConntrackCommit"
    accepted = ACCEPTED.replace("TABLE", table).replace("PRIORITY", priority)
    assert named(engine.plan().put) == sorted([own, *lines(ALWAYS), *lines(accepted)])


def world(pods: int = 50, peers: int = 200) -> list[Fact]:
    """Pods that two policies are for, and peers that both name."""
    names = [f"p{number}" for number in range(1, pods + 1)]
    far = [member(f"f{number}", f"10.20.{number // 250}.{number % 250 + 1}") for number in range(peers)]
    return [
        *(interface(name, number) for number, name in enumerate(names, 1)),
        policy(
            "one",
            "g",
            rule("In", peer("peers"), port(80)),
            rule("Out", peer("peers"), port(53, protocol="UDP")),
        ),
        policy("two", "g", rule("In", peer("peers", "more"))),
        *applied("g", *map(member, names)),
        *addresses("peers", *far),
    ]


def test_one_member_more_costs_its_flows_and_none_of_the_others() -> None:
    facts, engine = engine_of(NODE, *world())
    engine.plan()
    (new,) = addresses("peers", member("new", "10.30.0.1"))
    facts.put(new)
    plan = engine.plan()
    assert sorted(",".join(flow.match) for flow in plan.put) == ["ip,nw_dst=10.30.0.1", "ip,nw_src=10.30.0.1"]
    assert plan.drop == []
    facts.drop(type(new), new.key)
    plan = engine.plan()
    assert (len(plan.put), len(plan.drop)) == (0, 2)


def test_one_pod_more_costs_its_flows_and_isolation_comes_before_them() -> None:
    facts, engine = engine_of(NODE, *world())
    engine.plan()
    facts.put(interface("new", 99, "10.10.0.99"))
    for row in applied("g", member("new")):
        facts.put(row)
    put = [flow.table for flow in engine.plan().put if isinstance(flow, Flow)]
    assert (sorted(put[:2]), sorted(put[2:])) == (
        ["EgressDefaultRule", "IngressDefaultRule"],
        ["EgressRule", "IngressRule"],
    )
    facts.drop(PodInterface, "new-0")
    dropped = [flow.table for flow in engine.plan().drop if isinstance(flow, Flow)]
    assert sorted(dropped[2:]) == ["EgressDefaultRule", "IngressDefaultRule"]


def test_the_same_rule_of_a_second_policy_costs_nothing() -> None:
    facts, engine = engine_of(NODE, *world())
    engine.plan()
    facts.put(policy("three", "g", rule("In", peer("peers"), port(80))))
    plan = engine.plan()
    assert (plan.put, plan.drop) == ([], [])


def test_a_changed_policy_keeps_the_conjunctions_of_rules_that_stay() -> None:
    facts, engine = engine_of(NODE, *world())
    engine.plan()
    facts.put(policy("two", "g", rule("In", peer("peers", "more")), rule("In", peer("more"), port(443))))
    plan = engine.plan()
    changed = {f"{flow.table} {','.join(flow.match)}" for flow in plan.put}
    assert not any("nw_src=10.20" in line or "Default" in line for line in changed)
    assert plan.drop == []


def test_nothing_is_left_when_all_policies_are_gone() -> None:
    facts, engine = engine_of(NODE, *world())
    engine.plan()
    for row in world():
        facts.drop(type(row), row.key)
    engine.plan()
    before, idle = engine_of(NODE)
    idle.plan()
    assert named(engine.standing().values()) == named(idle.standing().values())
    assert facts.ids.standing() == before.ids.standing()


def some_policy(rnd: random.Random, name: str) -> Fact:
    def one() -> cp.NetworkPolicyRule:
        blocks = [block("10.0.0.0/8", "10.20.0.0/16")] if rnd.random() < 0.3 else []
        other = (
            ANY if rnd.random() < 0.2 else peer(*rnd.sample(("p", "q", "r"), rnd.randrange(3)), blocks=blocks)
        )
        ports = rnd.sample(
            [port(80), port(443, 450), port("http"), port(53, protocol="UDP")], rnd.randrange(3)
        )
        return rule(rnd.choice(("In", "Out")), other, *ports)

    return policy(name, rnd.choice("gh"), *(one() for _ in range(rnd.randrange(4))))


def some_write(rnd: random.Random) -> Fact:
    number = rnd.randrange(1, 6)
    given = {"http": rnd.choice((80, 8080))} if rnd.random() < 0.5 else {}
    kind = rnd.randrange(4)
    if kind == 0:
        return some_policy(rnd, f"policy{rnd.randrange(6)}")
    if kind == 1:
        return interface(f"p{number}", number)
    if kind == 2:
        return applied(rnd.choice("gh"), member(f"p{number}", **given))[0]
    return addresses(rnd.choice("pqr"), member(f"p{number}", f"10.10.0.{number}", **given))[0]


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_changes_ends_where_a_fresh_start_does(seed: int) -> None:
    rnd = random.Random(seed)
    facts, engine = engine_of(NODE)
    rows: dict[tuple[type[Fact], str], Fact] = {}
    for _ in range(60):
        if rows and rnd.random() < 0.3:
            kind, key = rnd.choice(sorted(rows, key=str))
            del rows[kind, key]
            facts.drop(kind, key)
        else:
            row = some_write(rnd)
            rows[type(row), row.key] = row
            facts.put(row)
        if rnd.random() < 0.4:
            engine.plan()
    engine.plan()
    fresh, scratch = engine_of(NODE)
    fresh.ids = facts.ids  # the same rule has the same number wherever it is computed
    for row in rows.values():
        fresh.put(row)
    scratch.plan()
    assert named(engine.standing().values()) == named(scratch.standing().values())
    assert not engine.errors.standing


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 65535), (1, 65535), (80, 80), (8080, 8090), (1000, 1007), (65535, 65535), (3, 40000)],
)
def test_a_range_of_ports_is_split_into_blocks_that_cover_it_once(first: int, last: int) -> None:
    parts = list(masked_ports(first, last))
    covered = [port for value, mask in parts for port in range(value, value + (0x10000 - mask))]
    assert covered == list(range(first, last + 1))
    assert all(value & ~mask & 0xFFFF == 0 for value, mask in parts)


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ((), ["10.0.0.0/30"]),
        (("10.0.0.2/32",), ["10.0.0.0/31", "10.0.0.3/32"]),
        (("10.0.0.0/31", "10.0.0.3/32"), ["10.0.0.2/32"]),
        (("10.0.0.0/8",), []),
        (("10.0.0.0/30",), []),
        (("192.0.2.0/24",), ["10.0.0.0/30"]),
    ],
)
def test_a_network_with_holes_is_what_is_left_of_it(holes: tuple[str, ...], left: list[str]) -> None:
    assert [str(one) for one in networks(block("10.0.0.0/30", *holes))] == left


def test_every_flow_can_be_put_into_words() -> None:
    _, engine = engine_of(NODE, *world(3, 3))
    assert all(flow.text(PIPELINE, 1) for flow in engine.plan().put if isinstance(flow, Flow))
