"""Traces under faults and in numbers: 64 at once, an agent that is killed, Pods that vanish or never were, and to oneself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from agent_node import in_agent, restart_agent, wait_ready
from quiet_pod import POD, quiet_pods

from lab.images import AGNHOST
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide
PODS = {"many-a": "node-1", "many-far": "node-2"}


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[dict[str, str]]:
    with quiet_pods(lab, PODS) as found:
        yield found


def start(lab: Lab, *names: str, source: str = "many-a", **spec: Any) -> None:
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Traceflow"}
    body = {"source": {"namespace": "default", "pod": source}} | spec
    lab.api.apply(yaml.safe_dump_all({**head, "metadata": {"name": name}, "spec": body} for name in names))


def status(lab: Lab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.api.kubectl("get", "traceflow", name, "-o", "json"))
    return dict(found.get("status", {}))


def phases(lab: Lab) -> list[str]:
    found = json.loads(lab.api.kubectl("get", "traceflows", "-o", "json"))["items"]
    return [one.get("status", {}).get("phase", "") for one in found]


def flows(lab: Lab) -> int:
    words = ("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int", "cookie=0x70000000000/0xff0000000000")
    return sum(in_agent(lab, node, *words).count("table=") for node in ("node-1", "node-2"))


@pytest.fixture(autouse=True)
def _nothing_left(lab: Lab) -> Iterator[None]:
    yield
    lab.api.kubectl("delete", "traceflows", "--all")
    wait_for("no flow of a trace is left", lambda: flows(lab) == 0, seconds=60)


def test_64_at_once_all_arrive(lab: Lab, pods: dict[str, str]) -> None:
    to: dict[str, Any] = {"destination": {"ip": pods["many-far"]}}
    start(lab, *(f"many-{number}" for number in range(64)), **to)
    wait_for("all are over", lambda: set(phases(lab)) <= {"Succeeded", "Failed"}, seconds=180)
    assert phases(lab) == ["Succeeded"] * 64


def test_a_trace_goes_on_with_the_agent_that_follows_a_killed_one_and_injects_once(
    lab: Lab, pods: dict[str, str]
) -> None:
    start(lab, "killed", destination={"ip": pods["many-far"]}, timeout=120)
    wait_for("it runs", lambda: status(lab, "killed").get("phase"), seconds=30)
    restart_agent(lab, "node-1")
    wait_ready(lab, "node-1")
    wait_for("it is over", lambda: status(lab, "killed").get("phase") != "Running", seconds=130)
    found = status(lab, "killed")
    assert (found["phase"], sorted(one["node"] for one in found["results"])) == (
        "Succeeded",
        ["node-1", "node-2"],
    )


def test_a_trace_from_a_pod_that_vanishes_fails_and_says_so(lab: Lab, pods: dict[str, str]) -> None:
    manifest = POD.replace("NAME", "many-gone").replace("NODE", "node-1")
    lab.api.apply(manifest.replace("IMAGE", AGNHOST).replace("ARGS", "pause"))
    lab.api.kubectl("wait", "--for=condition=Ready", "pod/many-gone", "--timeout=180s", seconds=200)
    start(lab, "gone", source="many-gone", destination={"ip": pods["many-far"]}, timeout=15)
    lab.api.kubectl("delete", "pod", "many-gone", "--grace-period=0", "--force")
    wait_for("it is over", lambda: status(lab, "gone").get("phase") == "Failed", seconds=60)
    assert "default/many-gone" in status(lab, "gone")["reason"]


def test_a_trace_to_a_pod_that_is_not_there_fails_at_once_with_upstreams_words(
    lab: Lab, pods: dict[str, str]
) -> None:
    start(lab, "none", destination={"namespace": "default", "pod": "non-existing-pod"})
    wait_for("it is over", lambda: status(lab, "none").get("phase") == "Failed", seconds=15)
    why = 'Node: node-1, error: failed to get the destination Pod: pods "non-existing-pod" not found'
    assert status(lab, "none")["reason"] == why


def test_a_trace_to_itself_is_delivered(lab: Lab, pods: dict[str, str]) -> None:
    start(lab, "self", destination={"ip": pods["many-a"]})
    wait_for("it is over", lambda: status(lab, "self").get("phase") == "Succeeded", seconds=30)
