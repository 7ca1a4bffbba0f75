"""The doctor names objects whose feature gate is off in agents, and Nodes whose round-trip times are missing or long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from aiohttp import web
from loopback import answering

from antrea.antctl.doctor.agent_gates import (
    KINDS,
    MAX_OBJECTS,
    agent_gates,
    gated,
    gates_of,
    unread,
    waiting_objects,
)
from antrea.antctl.doctor.node_latency import FIGURES, MONITOR, judged, node_latency
from antrea.antctl.doctor.objects import objects
from antrea.antctl.doctor.state import Finding
from antrea.antctl.gates import blocks
from antrea.antctl.request import Server
from antrea.apis.annotation import LATENCY_THRESHOLD
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
CAPTURE, CONTROL = (
    next(kind for kind in KINDS if kind.name == name) for name in ("PacketCapture", "TrafficControl")
)
ON, OFF = {"TrafficControl": True}, {"TrafficControl": False}
REPAIR = "kubectl -n kube-system edit configmap antrea-config  # set featureGates.TrafficControl in antrea-agent.conf"


@pytest.mark.parametrize(
    ("gates", "text"),
    [
        ({}, ""),
        ({"a": ON, "b": ON}, ""),
        ({"a": OFF, "b": {}}, "is off in all agents: nothing acts on it"),
        ({"a": ON, "b": OFF}, "is off in the agents of Node b: it has no effect there"),
        (
            {"a": ON, **{f"n{number}": OFF for number in range(7)}},
            "is off in the agents of Node n0, n1, n2, n3, n4 and 2 more: it has no effect there",
        ),
    ],
)
def test_an_object_is_named_with_its_gate_where_agents_have_it_off(gates: dict[str, Any], text: str) -> None:
    found = [*unread(CONTROL, ["mirror"], gates, "kube-system")]
    whole = f"TrafficControl mirror: the feature gate TrafficControl {text}"
    assert found == ([Finding("", "warning", "agent-gates", whole, REPAIR)] if text else [])


def test_of_many_objects_the_first_are_named() -> None:
    names = [f"m{number}" for number in range(MAX_OBJECTS + 5)]
    found = [*unread(CONTROL, names, {"a": OFF}, "")]
    assert len(found) == MAX_OBJECTS + 1
    assert found[-1].finding == f"TrafficControl: there are more than {MAX_OBJECTS} of them"


def test_gates_are_read_of_what_antctl_prints() -> None:
    told = [
        {"component": "agent", "name": name, "status": status, "version": "ALPHA"}
        for name, status in (("TrafficControl", "Enabled"), ("PacketCapture", "Disabled"))
    ]
    assert gates_of(blocks(told)) == {"TrafficControl": True, "PacketCapture": False}


async def asked(listed: dict[str, Any], call: Callable[[Server], T]) -> T:
    """Of a cluster with these answers by path; a number is the answer's status, other paths are not served."""

    async def answer(request: web.BaseRequest) -> web.Response:
        told = listed.get(request.path, 404)
        if isinstance(told, int):
            return web.json_response({"kind": "Status", "message": "no"}, status=told)
        return web.json_response(told)

    async with answering(answer) as url:
        return await asyncio.to_thread(call, Server(Access(url=url), 60.0))


def stated(name: str, reason: str) -> dict[str, Any]:
    """A capture that has not begun, for this reason."""
    condition = {"type": "PacketCaptureStarted", "status": "False", "reason": reason, "message": "why"}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("gates", "named"),
    [
        ({"a": False, "b": False}, {"unread", "podless"}),
        ({"a": False, "b": True}, {"unread"}),
        ({"a": True, "b": True}, set()),
    ],
    ids=["off", "off in one", "on"],
)
async def test_a_capture_has_one_line_its_gate_or_what_its_status_says(
    gates: dict[str, bool], named: set[str]
) -> None:
    """The reason of the controller gives way to the line of a gate that is off everywhere; the reason of an agent does not."""
    captures = [{"metadata": {"name": "unread"}}, stated("podless", "NoNode"), stated("full", "NotStarted")]
    found = gated(
        waiting_objects(CAPTURE, captures),
        {node: {"PacketCapture": on} for node, on in gates.items()},
        "kube-system",
    )
    assert found.named == {("PacketCapture", name) for name in named}
    assert found.kinds == ({"PacketCapture"} if named else set())
    lines = [one.finding for one in found.findings]
    assert all(any(line.startswith(f"PacketCapture {name}: ") for line in lines) for name in named)
    listed = {CAPTURE.path: {"items": captures}}
    others = await asked(listed, lambda server: list(objects(server, found.named)))
    assert [one.finding.partition(": ")[0] for one in others] == [
        f"PacketCapture {name}" for name in ("unread", "podless", "full") if name not in named
    ]


async def test_agents_are_not_asked_where_nothing_waits_for_them() -> None:
    condition = {"type": "PacketCaptureStarted", "status": "True"}
    begun = {"metadata": {"name": "c"}, "status": {"conditions": [condition]}}
    pods = {"a": {"metadata": {"namespace": "kube-system", "name": "agent-a"}}}
    listed: dict[str, Any] = {CAPTURE.path: {"items": [begun]}, CONTROL.path: {"items": []}}

    async def findings() -> tuple[Finding, ...]:
        return (await asked(listed, lambda server: agent_gates(server, pods))).findings

    assert await findings() == ()
    listed[CONTROL.path] = {"items": [{"metadata": {"name": "mirror"}}]}
    (row,) = await findings()
    assert (row.node, row.severity) == ("a", "error")
    assert row.finding.startswith("feature gates of the agent in Pod kube-system/agent-a cannot be read: ")
    listed = {CONTROL.path: 403}
    (row,) = await findings()
    assert (row.severity, row.finding.partition(":")[0]) == ("error", "TrafficControl")


def monitor(threshold: str = "") -> dict[str, Any]:
    annotations = {LATENCY_THRESHOLD: threshold} if threshold else {}
    return {"metadata": {"name": "default", "annotations": annotations}, "spec": {"pingIntervalSeconds": 10}}


def report(node: str, *rows: tuple[str, str | None, int]) -> dict[str, Any]:
    """Of one Node: time sent, time received, nanoseconds."""
    told = [
        {
            "targetIP": "10.0.0.1",
            "lastSendTime": sent,
            "lastRecvTime": came,
            "lastMeasuredRTTNanoseconds": took,
        }
        for sent, came, took in rows
    ]
    peers = [{"nodeName": "other", "targetIPLatencyStats": told}] if told else []
    return {"metadata": {"name": node}, "peerNodeLatencyStats": peers}


SENT, LATE, LONG_AGO = "2026-11-27T00:12:34.123456789Z", "2026-11-27T00:12:15Z", "2026-11-27T00:12:14Z"


@pytest.mark.parametrize(
    ("row", "threshold", "text"),
    [
        ((SENT, SENT, 900_000), "", ""),
        ((SENT, SENT, 900_000), "1ms", ""),
        ((SENT, SENT, 1_100_000), "1ms", "took 1.100 ms, more than the threshold of 1 ms"),
        ((SENT, SENT, 1_100_000), "soon", ""),
        ((SENT, LATE, 900_000), "1ms", ""),
        ((SENT, LONG_AGO, 900_000), "1ms", f"has not answered since {LONG_AGO}"),
        ((SENT, None, 0), "", "has never answered"),
    ],
)
def test_a_way_that_is_slow_or_silent_is_named(row: Any, threshold: str, text: str) -> None:
    found = [*judged(monitor(threshold), [report("a", row)], ["a"])]
    whole = f"Node a to Node other (10.0.0.1): {text}"
    assert found == (
        [Finding("", "warning", "node-latency", whole, "antctl get nodelatencystats a")] if text else []
    )


async def test_a_node_without_figures_is_named_while_there_is_a_monitor() -> None:
    good = report("a", (SENT, SENT, 1))
    listed = {MONITOR: monitor(), FIGURES: {"items": [good, report("b")]}}
    found = await asked(listed, lambda server: list(node_latency(server, ["a", "b", "c"])))
    assert [one.finding.partition(" reports")[0] for one in found] == ["Node b", "Node c"]
    assert found[0].repair == "kubectl get aai b -o yaml"
    listed[FIGURES] = {"items": []}
    assert await asked(listed, lambda server: list(node_latency(server, ["a"]))) == []
    assert await asked({}, lambda server: list(node_latency(server, ["a", "b"]))) == []
    (row,) = await asked({MONITOR: monitor()}, lambda server: list(node_latency(server, ["a", "b"])))
    assert row.severity == "error"
