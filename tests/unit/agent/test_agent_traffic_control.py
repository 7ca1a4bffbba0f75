"""What a Node reports of TrafficControls whose ports are not on its bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from agent_context import agent_context

from antrea.apis import controlplane as cp
from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.facts.node import LocalLink, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.unrealized import Unrealized
from antrea.features.grouping.selector import NEVER
from antrea.features.network_policy.agent.rule import PolicyRule
from antrea.features.traffic_control.agent_part import TrafficControlPart
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import SteeredNamespace, SteeredPod, Steering
from antrea.features.traffic_control.switch_port import CONTROL_PORTS
from antrea.host.ovs_port import Port

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

TARGET, RETURNED = Port(name="ids0"), Port(name="ids1")
DROPPED = "; packets of Pods that are redirected to them are dropped until then"


def row(name: str, **more: Any) -> Steering:
    return Steering(
        name, f"u-{name}", "2027", None, None, "Both", more.pop("redirects", True), TARGET, **more
    )


def known() -> Facts:
    facts = Facts()
    facts.put(AgentConfig())
    facts.put(Transport("eth0", "eth0", "0a:00:00:00:00:01", 1500, ("192.0.2.1/24",)))
    facts.put(LocalLink("eth0", 2))
    return facts


def reported(*rows: Steering, there: tuple[str, ...] = ()) -> str:
    facts = known()
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
    assert text.startswith(
        "ports of TrafficControls are not on the bridge: 'ids0' of a (there is no such device): "
    )
    assert text.endswith(DROPPED)


def test_a_missing_mirror_or_return_port_drops_nothing() -> None:
    assert not reported(row("a", redirects=False)).endswith(DROPPED)
    assert not reported(row("a", returned=RETURNED), there=("ids0",)).endswith(DROPPED)


def test_of_many_some_are_named() -> None:
    text = reported(*(row(f"t{number}") for number in range(9)))
    assert "'ids0' of t4 (there is no such device) and 4 more" in text


def test_what_keeps_a_port_from_the_bridge_is_named() -> None:
    def why(name: str, *more: Fact) -> str:
        facts = known()
        target = Port(name=name, type="internal")
        steering = msgspec.structs.replace(row("a"), target=target)
        for one in (steering, *more):
            facts.put(one)
        return TrafficControlPart(agent_context(facts)).conditions()["TrafficControlPortsMissing"]()

    assert "of a: create" in why("ids0")
    assert "(a name has 1 to 15 bytes)" in why("x" * 16)
    assert "(the name is that of the Node's network card or of another port)" in why("eth0")
    refused = Unrealized(CONTROL_PORTS.name, "a", "could not add network device\nids0")
    assert "(could not add network device\\nids0)" in why("ids0", refused)


def bypassed(*rows: Any, condition: str = "TrafficControlBypassed") -> str:
    facts = known()
    pod = PodInterface("p", "c", "shop", "web", "0a:00:00:00:00:11", ("10.0.0.1",), 7, "u")
    for one in (pod, SteeredPod("shop", "web", ()), SteeredNamespace("shop", ()), *rows):
        facts.put(one)
    return TrafficControlPart(agent_context(facts)).conditions()[condition]()


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


def test_pods_that_several_select_are_named_with_what_they_follow() -> None:
    rows = [msgspec.structs.replace(row(name), pods=()) for name in ("b", "a")]
    text = bypassed(*rows, condition="TrafficControlOverlapped")
    assert text.endswith("the oldest counts: shop/web follows a and not b")
    assert not bypassed(rows[0], condition="TrafficControlOverlapped")
