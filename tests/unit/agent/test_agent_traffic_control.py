"""What a Node reports of TrafficControls whose ports are not on its bridge."""

from __future__ import annotations

from typing import Any

import msgspec
from agent_context import agent_context

from antrea.agent.traffic_control.part import TrafficControlPart
from antrea.apis import controlplane as cp
from antrea.engine import Facts
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.grouping.selector import NEVER
from antrea.features.network_policy.agent.rule import PolicyRule
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import SteeredNamespace, SteeredPod, Steering
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


def bypassed(*rows: Any) -> str:
    facts = Facts()
    pod = PodInterface("p", "c", "shop", "web", "0a:00:00:00:00:11", ("10.0.0.1",), 7, "u")
    for one in (pod, SteeredPod("shop", "web", ()), SteeredNamespace("shop", ()), *rows):
        facts.put(one)
    return TrafficControlPart(agent_context(facts)).conditions()["TrafficControlBypassed"]()


def test_trafficcontrols_that_an_l7_engine_takes_packets_from_are_named() -> None:
    plain = PolicyRule("r", "In", ("g",), cp.NetworkPolicyPeer(), ())
    looked_at = (cp.L7Protocol(http=cp.HTTPProtocol(path="/public")),)
    judged = msgspec.structs.replace(plain, l7_protocols=looked_at)
    mirror, other = row("a", redirects=False), row("z")
    mirror, other = msgspec.structs.replace(mirror, pods=()), msgspec.structs.replace(other, pods=(NEVER,))
    assert not bypassed(plain, mirror)
    assert not bypassed(judged)
    assert not bypassed(judged, other)
    assert " by TrafficControls a: " in bypassed(judged, mirror, other)
