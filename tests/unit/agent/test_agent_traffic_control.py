"""What a Node reports of TrafficControls whose ports are not on its bridge."""

from __future__ import annotations

from typing import Any

from agent_context import agent_context

from antrea.agent.traffic_control.part import TrafficControlPart
from antrea.engine import Facts
from antrea.facts.ovs import OvsPort
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import Steering
from antrea.host.ovs_port import Port

TARGET, RETURNED = Port(name="ids0"), Port(name="ids1")
DROPPED = "; packets of Pods that are redirected to them are dropped until then"


def row(name: str, **more: Any) -> Steering:
    return Steering(
        name, f"u-{name}", "2027", None, None, "Both", more.pop("redirects", True), TARGET, **more
    )


def reported(*rows: Steering, there: tuple[str, ...] = ()) -> str:
    facts = Facts()
    for one in rows:
        facts.put(one)
    for number, name in enumerate(there, 5):
        facts.put(OvsPort(name, PORT_TYPE, number, ""))
    return TrafficControlPart(agent_context(facts)).conditions()["TrafficControlPortsMissing"]()


def test_ports_that_are_there_are_not_reported() -> None:
    assert not reported()
    assert not reported(row("a", returned=RETURNED), there=("ids0", "ids1"))


def test_a_missing_target_of_a_redirect_is_named_with_what_it_costs() -> None:
    text = reported(row("a", returned=RETURNED), there=("ids1",))
    assert text.startswith("ports of TrafficControls are not on the bridge: 'ids0' of a: ")
    assert text.endswith(DROPPED)


def test_a_missing_mirror_or_return_port_drops_nothing() -> None:
    assert not reported(row("a", redirects=False)).endswith(DROPPED)
    assert not reported(row("a", returned=RETURNED), there=("ids0",)).endswith(DROPPED)


def test_of_many_some_are_named() -> None:
    text = reported(*(row(f"t{number}") for number in range(9)))
    assert "'ids0' of t4 and 4 more" in text
