"""Which TrafficControl a packet meets at each Node, and which ones select it without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from explain_world import NAMESPACES, NODES, PODS, ask

from antrea.explain.objects import objects
from antrea.explain.steering import OLDER, STRONGER
from antrea.explain.world import World

if TYPE_CHECKING:
    from antrea.explain.steering import SteeredPacket

GATES = frozenset({"TrafficControl"})
TAP = {"ovsInternal": {"name": "tap0"}}


def control(name: str, app: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    applied = {"podSelector": {"matchLabels": {"app": app}}} if app else {}
    given = {"appliedTo": applied, "direction": "Both", "action": "Mirror", "targetPort": TAP, **spec}
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": given}


def steered(
    *controls: dict[str, Any], gates: frozenset[str] = GATES, source: str = "a/client", to: str = "a/web"
) -> tuple[SteeredPacket, ...]:
    lists = {"pods": PODS, "nodes": NODES, "namespaces": NAMESPACES, "traffic_controls": list(controls)}
    return ask(World(objects(lists), gates=gates), source, to).traffic_controls


def test_what_selects_no_end_of_the_packet_is_not_named() -> None:
    assert steered() == ()
    assert steered(control("other", "db"), control("nobody", "")) == ()
    assert steered(control("t", "web"), gates=frozenset()) == ()
    assert steered(control("t", "web", direction="Egress")) == ()
    assert steered(control("t", "client", direction="Ingress")) == ()
    assert steered(control("t", "host"), to="b/host") == ()


@pytest.mark.parametrize(
    ("port", "text"),
    [
        (TAP, "internal port tap0"),
        ({"device": {"name": "ids0"}}, "device ids0"),
        ({"geneve": {"remoteIP": "192.0.2.7"}}, "geneve tunnel to 192.0.2.7"),
        ({"erspan": {"remoteIP": "2001:db8::7", "version": 2}}, "erspan tunnel to 2001:db8::7"),
    ],
)
def test_the_target_and_the_way_back_are_named(port: dict[str, Any], text: str) -> None:
    (found,) = steered(control("t", "web", action="Redirect", targetPort=port, returnPort=TAP))
    assert (found.node, found.direction, found.pod) == ("n1", "Ingress", "a/web")
    assert (found.traffic_control, found.action) == ("t", "Redirect")
    assert (found.target, found.returned) == (text, "internal port tap0")
    (mirror,) = steered(control("t", "web", targetPort=port, returnPort=TAP))
    assert mirror.returned == ""


def test_of_several_that_select_a_pod_the_oldest_counts_then_the_first_by_name() -> None:
    young = control("a", "client", "2026-02-01T00:00:00Z", action="Redirect")
    (found,) = steered(young, control("c", "client"), control("b", "client"))
    assert found.traffic_control == "b"
    assert found.without_effect == tuple(f"{name}: {OLDER.format('b')}" for name in ("c", "a"))


def test_an_older_one_of_another_direction_counts_all_the_same() -> None:
    young = control("young", "client", "2026-02-01T00:00:00Z")
    assert steered(control("old", "client", direction="Ingress"), young) == ()


def test_where_both_ends_are_on_a_node_redirect_comes_first_then_the_sender() -> None:
    mine, theirs = control("mine", "client"), control("theirs", "web")
    (found,) = steered(mine, theirs)
    assert (found.traffic_control, found.without_effect) == ("mine", (f"theirs: {STRONGER.format('mine')}",))
    (found,) = steered(mine, control("theirs", "web", action="Redirect"))
    assert (found.traffic_control, found.direction) == ("theirs", "Ingress")


def test_each_node_of_a_packet_has_its_own() -> None:
    found = steered(control("mine", "client"), control("theirs", "db"), to="b/db")
    assert [(one.node, one.direction, one.traffic_control) for one in found] == [
        ("n1", "Egress", "mine"),
        ("n2", "Ingress", "theirs"),
    ]
