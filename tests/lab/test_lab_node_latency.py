"""NodeLatencyMonitor in a cluster: `kubectl get nodelatencystats` has what each Node measured, until nobody asks for it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import workstation
from config_map import ConfigMap, wait_value

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

MONITOR = """
apiVersion: crd.antrea.io/v1alpha1
kind: NodeLatencyMonitor
metadata: {name: default, annotations: {antrea.io/latency-threshold: 1ns}}
spec: {pingIntervalSeconds: 1}
"""
ROW = re.compile(r"^(\S+) +(\d+) +([\d.]+(?:µs|ms|s)) +([\d.]+(?:µs|ms|s))$")


CAPTURE = """
apiVersion: crd.antrea.io/v1alpha1
kind: PacketCapture
metadata: {name: unread}
spec:
  source: {ip: 192.0.2.1}
  destination: {pod: {namespace: default, name: nobody}}
  captureConfig: {firstN: {number: 1}}
"""
KINDS = ("agent-gates", "captures", "node-latency")


@pytest.fixture
def monitored(lab: Lab) -> Iterator[Lab]:
    config = ConfigMap(lab)
    config.change(featureGates={"NodeLatencyMonitor": True})
    try:
        wait_value(lab, "featureGates", {"NodeLatencyMonitor": True})
        yield lab
    finally:
        lab.api.kubectl("delete", "nodelatencymonitors", "--all")
        config.write(config.text)
        wait_value(lab, "featureGates", {})


def rows(lab: Lab) -> list[tuple[str, ...]]:
    """Name of each Node, and how many others it measured."""
    shown = lab.api.kubectl("get", "nodelatencystats", "--no-headers").splitlines()
    return [found.groups()[:2] for line in shown if (found := ROW.match(line.strip()))]


def answered(lab: Lab) -> list[dict[str, Any]]:
    found = json.loads(lab.api.kubectl("get", "nodelatencystats", "-o", "json"))["items"]
    each = (
        one for item in found for peer in item["peerNodeLatencyStats"] for one in peer["targetIPLatencyStats"]
    )
    return [one for one in each if one.get("lastMeasuredRTTNanoseconds", 0) > 0 and one.get("lastRecvTime")]


def test_each_node_measures_all_others_while_there_is_a_monitor(monitored: Lab) -> None:
    lab, names = monitored, [machine.name for machine in monitored.topology.nodes]
    assert rows(lab) == []
    lab.api.apply(MONITOR)
    wait_for(
        "a row of each Node", lambda: rows(lab) == [(name, str(len(names) - 1)) for name in names], seconds=60
    )
    wait_for("all have answered", lambda: len(answered(lab)) == len(names) * (len(names) - 1), seconds=60)

    printed = [line.split() for line in workstation.run(lab, "get", "nodelatencystats").stdout.splitlines()]
    assert printed[0] == ["FROM", "TO", "ADDRESS", "RTT", "SENT", "ANSWERED"]
    assert {(line[0], line[1]) for line in printed[1:]} == {(a, b) for a in names for b in names if a != b}
    assert all(re.fullmatch(r"\d+\.\d{3}ms", line[3]) for line in printed[1:])

    def told() -> set[str]:
        events = json.loads(lab.api.kubectl("get", "events", "-o", "json"))["items"]
        return {one["involvedObject"]["name"] for one in events if one["reason"] == "NodeLatencyHigh"}

    wait_for("an Event of each Node", lambda: told() == set(names), seconds=60)
    lab.api.kubectl("delete", "nodelatencymonitor", "default")
    wait_for("no row", lambda: lab.api.kubectl("get", "nodelatencystats", "--no-headers") == "", seconds=60)


def doctor(lab: Lab) -> list[tuple[str, str, str]]:
    """What is said of gates and of round-trip times: check, finding and repair."""
    done = workstation.run(lab, "doctor", "-o", "json", code=1)
    return [
        (row["check"], row["finding"], row["repair"])
        for row in json.loads(done.stdout)
        if row["check"] in KINDS
    ]


@pytest.mark.wide
def test_doctor_names_objects_whose_gate_is_off_and_then_slow_ways(lab: Lab) -> None:
    names = [machine.name for machine in lab.topology.nodes]
    config = ConfigMap(lab)
    edit = "kubectl -n kube-system edit configmap antrea-config  # set featureGates.{} in antrea-agent.conf"

    def off(kind: str, name: str) -> tuple[str, str, str]:
        text = f"{kind} {name}: the feature gate {kind} is off in all agents: nothing acts on it"
        return ("agent-gates", text, edit.format(kind))

    try:
        lab.api.apply(MONITOR)
        lab.api.apply(CAPTURE)
        assert doctor(lab) == [off("PacketCapture", "unread"), off("NodeLatencyMonitor", "default")]
        lab.api.kubectl("delete", "packetcapture", "unread")
        config.change(featureGates={"NodeLatencyMonitor": True})
        wait_for("figures", lambda: len(answered(lab)) == len(names) * (len(names) - 1), seconds=120)
        found = doctor(lab)
        ways = {(a, b) for a in names for b in names if a != b}
        told = [re.match(r"Node (\S+) to Node (\S+) \(.*\): took .* ms, more than the threshold of 1e-06 ms$", text) for _, text, _ in found]  # fmt: skip
        assert {one.groups() for one in told if one} == ways, found
        assert {one[2] for one in found} == {f"antctl get nodelatencystats {name}" for name in names}
    finally:
        lab.api.kubectl("delete", "packetcaptures", "--all")
        lab.api.kubectl("delete", "nodelatencymonitors", "--all")
        config.write(config.text)
        wait_value(lab, "featureGates", {})
