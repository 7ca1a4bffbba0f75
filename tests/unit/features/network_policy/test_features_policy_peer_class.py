"""Addresses of a group that many rules name: what flows they are, and what one more rule, member or group costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from policy_world import (
    ANY,
    WITHOUT,
    addresses,
    applied,
    engine_of,
    interface,
    member,
    named,
    native,
    peer,
    pipeline,
    policy,
    port,
    rule,
)

from antrea.facts.node import ThisNode
from antrea.facts.unrealized import Unrealized
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.peer_class import CLASSES, MANY
from antrea.features.network_policy.agent.received import SentAddressMember, SentPolicy

if TYPE_CHECKING:
    from antrea.engine import Engine, Facts

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB = interface("web", 7, "10.10.0.7")
PEERS = [member(f"far-{number}", f"10.10.1.{number}") for number in range(1, 5)]


def world(rules: int, *, kubernetes: bool = True, direction: str = "In") -> tuple[Facts, Engine]:
    """So many policies of one rule for one group of four, two of whom are in another group, too."""
    facts, engine = engine_of(V4, WEB, *applied("g", member("web")))
    for row in (*addresses("one", *PEERS), *addresses("two", *PEERS[:2])):
        facts.put(row)
    for number in range(rules):
        facts.put(stated(number, direction, kubernetes=kubernetes))
    return facts, engine


def stated(number: int, direction: str = "In", group: str = "one", *, kubernetes: bool = True) -> SentPolicy:
    if kubernetes:
        return policy(f"p{number}", "g", rule(direction, peer(group), port(1000 + number)))
    return native(f"p{number}", "g", rule(direction, peer(group), port(1000 + number)), priority=number + 1)


def shared(engine: Engine) -> list[str]:
    """Flows of classes, without the numbers of rules."""
    found = named(engine.standing().values())
    return [line.partition(" actions=conjunction")[0] for line in found if "reg11" in line]


def with_address(engine: Engine) -> list[str]:
    return [line for line in named(engine.standing().values()) if "nw_src=10.10.1." in line]


def test_few_rules_name_each_address_themselves_as_upstreams_do() -> None:
    _, engine = world(MANY - 1)
    engine.plan()
    assert shared(engine) == []
    assert [line.count("conjunction(") for line in with_address(engine)] == [MANY - 1] * 4


@pytest.mark.parametrize("kubernetes", [True, False])
def test_many_rules_share_a_flow_of_each_address_and_match_its_class(kubernetes: bool) -> None:
    _, engine = world(MANY, kubernetes=kubernetes)
    engine.plan()
    assert with_address(engine) == [
        f"table=AntreaPolicyIngressRule,priority=64989,ip,reg11=0x0/0x80000000,nw_src=10.10.1.{number}"
        " actions=set_field:0x80000001->reg11,resubmit(,AntreaPolicyIngressRule)"
        for number in range(1, 5)
    ]
    table = "IngressRule" if kubernetes else "AntreaPolicyIngressRule"
    classes = [line for line in shared(engine) if "reg11=0x80000001" in line]
    assert len({line.split(",")[1] for line in classes}) == len(classes) == (1 if kubernetes else MANY)
    assert all(line.startswith(f"table={table},") for line in classes)


def test_receivers_have_numbers_of_their_own() -> None:
    _, engine = world(MANY, direction="Out")
    engine.plan()
    lookup = "table=AntreaPolicyEgressRule,priority=64989,ip,reg11=0x0,nw_dst=10.10.1.{}"
    load = " actions=set_field:0x1->reg11,resubmit(,AntreaPolicyEgressRule)"
    assert shared(engine)[:2] == [f"{lookup.format(number)}{load}" for number in (1, 2)]
    assert shared(engine)[4:] == ["table=EgressRule,priority=200,reg11=0x1"]


def test_without_the_tables_of_antreas_policies_addresses_are_looked_up_where_rules_of_kubernetes_are() -> (
    None
):
    facts, engine = world(MANY)
    facts.put(WITHOUT)
    facts.put(RealizedPipeline(pipeline(WITHOUT)))
    engine.plan()
    found = [
        entry.named(pipeline(WITHOUT)) for entry in engine.standing().values() if hasattr(entry, "named")
    ]
    lookup = "table=IngressRule,priority=205,ip,reg11=0x0/0x80000000,nw_src=10.10.1.1"
    load = " actions=set_field:0x80000001->reg11,resubmit(,IngressRule)"
    assert [line for line in found if "nw_src=10.10.1.1" in line] == [f"{lookup}{load}"]


def test_one_more_rule_costs_the_members_nothing() -> None:
    facts, engine = world(MANY)
    engine.plan()
    facts.put(stated(MANY))
    put = named(engine.plan().put)
    assert [line for line in put if "10.10.1." in line] == []
    assert len([line for line in put if "reg11" in line]) == 1


def test_one_more_member_is_one_flow() -> None:
    facts, engine = world(MANY)
    engine.plan()
    facts.put(SentAddressMember("one", member("new", "10.10.1.9")))
    assert [line.partition(" ")[0] for line in named(engine.plan().put)] == [
        "table=AntreaPolicyIngressRule,priority=64989,ip,reg11=0x0/0x80000000,nw_src=10.10.1.9"
    ]


def test_addresses_with_the_same_groups_are_a_class() -> None:
    facts, engine = world(MANY)
    for number in range(MANY, 2 * MANY):
        facts.put(stated(number, group="two"))
    engine.plan()
    loads = [line.partition("set_field:")[2].partition("->")[0] for line in with_address(engine)]
    assert loads[0] == loads[1] != loads[2] == loads[3]
    found = [
        line for line in named(engine.standing().values()) if "table=IngressRule" in line and "reg11" in line
    ]
    assert sorted(line.count("conjunction(") for line in found) == [MANY, 2 * MANY]


def test_a_rule_less_gives_each_address_its_rules_back_and_leaves_nothing_behind() -> None:
    facts, engine = world(MANY)
    _, expected = world(MANY - 1)
    engine.plan()
    expected.plan()
    facts.drop(SentPolicy, f"p{MANY - 1}")
    engine.plan()
    assert named(engine.standing().values()) == named(expected.standing().values())


def test_rules_with_ports_that_members_number_stay_with_each_member() -> None:
    facts, engine = world(0)
    for row in addresses("three", member("far-9", "10.10.1.9", http=80)):
        facts.put(row)
    for number in range(MANY + 1):
        facts.put(policy(f"p{number}", "g", rule("Out", peer("three"), port("http"), port(number + 1))))
    engine.plan()
    assert shared(engine) == []


def test_what_the_switch_refuses_of_an_address_closes_the_pods_of_rules_that_forbid() -> None:
    facts, engine = world(0)
    for number in range(MANY):
        forbids = rule("In", peer("one"), port(1000 + number), action="Drop")
        facts.put(native(f"p{number}", "g", forbids, priority=number + 1))
    engine.plan()
    shut = "table=AntreaPolicyIngressRule,priority=64989,reg1=0x7 actions=drop"
    assert shut not in named(engine.standing().values())
    facts.put(Unrealized(CLASSES.name, "In 10.10.1.1", "no room"))
    engine.plan()
    assert shut in named(engine.standing().values())


def test_a_rule_for_everybody_has_no_class() -> None:
    facts, engine = world(MANY)
    facts.put(policy("any", "g", rule("In", ANY)))
    engine.plan()
    assert len(shared(engine)) == 5
