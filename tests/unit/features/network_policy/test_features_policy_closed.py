"""Rules that have no room close the Pods that they forbid something, and nobody else; their policies say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from policy_world import (
    ANY,
    addresses,
    applied,
    engine_of,
    interface,
    member,
    named,
    native,
    peer,
    port,
    rule,
)

from antrea.apis.policy_report import PolicyReport
from antrea.errors import Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.unrealized import Unrealized
from antrea.features.network_policy.agent.conjunction import CONJUNCTIONS, PEERS, TARGETS
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.engine import Engine, Facts, Unit
    from antrea.engine.ids import Record
    from antrea.features.network_policy.agent.received import SentPolicy

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB, DB = interface("web", 7, "10.10.0.7"), interface("db", 8, "10.10.0.8")
ROWS = (
    V4,
    WEB,
    DB,
    *applied("g", member("web")),
    *applied("d", member("db")),
    *addresses("peers", member("far", "10.10.1.5")),
)
FULL = "r: no priority is free"


def world(*tables: str, room: int = 1) -> tuple[Facts, Engine]:
    """Each of `tables` has room for so many rules."""
    facts, engine = engine_of(*ROWS)
    for table in tables:
        facts.ids.between(table, 100, 99 + room)
    engine.plan()
    return facts, engine


def deny(
    name: str, group: str = "g", *, tier: int = 100, action: str = "Drop", direction: str = "In"
) -> SentPolicy:
    return native(name, group, rule(direction, peer("peers"), port(80), action=action, name="r"), tier=tier)


def closed(engine: Engine) -> list[str]:
    """What drops all that is new."""
    flows = [entry for entry in engine.standing().values() if isinstance(entry, Flow)]
    found = [line for line in named(flows) if "DefaultRule" in line or "priority=64989" in line]
    return [line for line in found if "conj" not in line]


def reports(engine: Engine) -> dict[str, str]:
    found = (entry for entry in engine.standing().values() if isinstance(entry, PolicyReport))
    return {entry.policy: entry.failure for entry in found}


@pytest.mark.parametrize("action", ["Drop", "Reject", "Pass"])
def test_pods_of_a_rule_without_a_priority_are_closed_in_its_direction_and_no_others(action: str) -> None:
    facts, engine = world("AntreaPolicyIngressRule")
    facts.put(deny("first", "d"))
    engine.plan()
    assert closed(engine) == []
    facts.put(deny("second", action=action))
    engine.plan()
    assert closed(engine) == ["table=AntreaPolicyIngressRule,priority=64989,reg1=0x7 actions=drop"]
    assert reports(engine) == {"first": "", "second": FULL}


def test_what_a_pod_sends_is_closed_by_its_addresses() -> None:
    facts, engine = world("AntreaPolicyEgressRule")
    facts.put(deny("first", "d", direction="Out"))
    facts.put(deny("second", direction="Out"))
    engine.plan()
    assert closed(engine) == ["table=AntreaPolicyEgressRule,priority=64989,ip,nw_src=10.10.0.7 actions=drop"]


def test_a_rule_of_the_baseline_leaves_open_what_others_allow() -> None:
    facts, engine = world("IngressDefaultRule")
    facts.put(deny("first", "d", tier=253))
    facts.put(deny("second", tier=253))
    engine.plan()
    assert closed(engine) == ["table=IngressDefaultRule,priority=200,reg1=0x7 actions=drop"]


def test_an_allowing_rule_without_a_priority_closes_nobody_and_is_reported() -> None:
    facts, engine = world("AntreaPolicyIngressRule")
    facts.put(deny("first", "d"))
    facts.put(deny("second", action="Allow"))
    engine.plan()
    assert closed(engine) == []
    assert reports(engine)["second"] == FULL


def test_the_other_rules_of_such_a_pod_hold_on() -> None:
    facts, engine = world("AntreaPolicyIngressRule")
    facts.put(deny("first"))
    engine.plan()
    before = named(entry for entry in engine.standing().values() if isinstance(entry, Flow))
    facts.put(deny("second", tier=50))
    engine.plan()
    after = named(entry for entry in engine.standing().values() if isinstance(entry, Flow))
    assert {*after} - {*before} == {*closed(engine)}
    assert {*before} <= {*after}


def test_a_priority_that_becomes_free_opens_them_again() -> None:
    facts, engine = world("AntreaPolicyIngressRule")
    first = deny("first", "d")
    facts.put(first)
    engine.plan()
    facts.put(deny("second"))
    engine.plan()
    facts.drop(type(first), first.key)
    engine.plan()
    engine.plan()
    assert closed(engine) == []
    assert reports(engine) == {"second": ""}


class FullDisk:
    """A journal that takes nothing more."""

    def read(self) -> list[Record]:
        return []

    def append(self, record: Record) -> None:
        raise Unavailable(f"room for {record}")

    def rewrite(self, records: Iterable[Record]) -> None:
        """It was empty."""


def test_pods_of_a_rule_whose_number_cannot_be_kept_are_closed() -> None:
    facts, engine = world()
    facts.ids._journal = FullDisk()
    facts.put(deny("first"))
    engine.plan()
    assert closed(engine) == ["table=AntreaPolicyIngressRule,priority=64989,reg1=0x7 actions=drop"]


def test_a_rule_for_every_port_of_anybody_is_closed_as_well() -> None:
    facts, engine = world("AntreaPolicyIngressRule")
    facts.put(deny("first", "d"))
    facts.put(native("second", "g", rule("In", ANY, action="Drop")))
    engine.plan()
    assert closed(engine) == ["table=AntreaPolicyIngressRule,priority=64989,reg1=0x7 actions=drop"]


def refused(engine: Engine, facts: Facts, unit: Unit, part: str = "") -> None:
    """Say that the switch refused what this unit wants for a row whose key has this part."""
    keys = [job.key for job in engine.jobs() if job.unit.name == unit.name]
    facts.put(Unrealized(unit.name, next(key for key in keys if part in key), "too long"))
    engine.plan()


@pytest.mark.parametrize(("unit", "part"), [(CONJUNCTIONS, ""), (TARGETS, "web"), (PEERS, "")])
def test_pods_of_a_rule_of_which_the_switch_refuses_a_part_are_closed_and_its_policy_says_so(
    unit: Unit, part: str
) -> None:
    facts, engine = world()
    facts.put(deny("first"))
    engine.plan()
    assert (closed(engine), reports(engine)) == ([], {"first": ""})
    refused(engine, facts, unit, part)
    assert reports(engine) == {"first": "r: too long"}
    assert closed(engine) == ["table=AntreaPolicyIngressRule,priority=64989,reg1=0x7 actions=drop"]
    facts.replace(Unrealized, [])
    engine.plan()
    assert (closed(engine), reports(engine)) == ([], {"first": ""})


def test_what_is_refused_for_one_pod_closes_no_other() -> None:
    facts, engine = world()
    facts.put(deny("first"))
    engine.plan()
    refused(engine, facts, TARGETS, "db")
    assert (closed(engine), reports(engine)) == ([], {"first": ""})


def test_what_the_switch_refuses_of_rules_that_allow_closes_nobody() -> None:
    facts, engine = world()
    facts.put(deny("first", action="Allow"))
    engine.plan()
    refused(engine, facts, CONJUNCTIONS)
    assert (closed(engine), reports(engine)) == ([], {"first": "r: too long"})
