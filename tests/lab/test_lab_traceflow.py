"""`antctl traceflow` follows packets between Pods of two Nodes, to where they arrive, leave or are dropped, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import workstation
import yaml
from agent_node import in_agent, pod_namespace
from quiet_pod import quiet_pods

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

PODS = {"flow-a": "node-1", "flow-far": "node-2"}
DENY = """
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: flow-deny}
spec:
  tier: application
  priority: 5
  appliedTo: [{podSelector: {matchLabels: {flow: far}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}]
  ingress: [{name: no-icmp, action: Drop, protocols: [{icmp: {}}]}]
"""
TUNNEL_END = "172.31.0.12"


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[dict[str, str]]:
    """Addresses of a Pod on each Node."""
    with quiet_pods(lab, PODS) as found:
        yield found


def traced(lab: Lab, *words: str) -> dict[str, Any]:
    """What antctl prints of a trace that succeeds."""
    found: dict[str, Any] = json.loads(workstation.run(lab, "traceflow", *words, "-o", "json").stdout)
    assert found["phase"] == "Succeeded", found
    return found


def ways(found: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Component and action of each observation, by Node."""
    return {
        result["node"]: [(one["component"], one["action"]) for one in result["observations"]]
        for result in found["results"]
    }


def flows(lab: Lab) -> int:
    """Flows of traces on both Nodes."""
    words = ("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int", "cookie=0x70000000000/0xff0000000000")
    return sum(in_agent(lab, node, *words).count("table=") for node in ("node-1", "node-2"))


def test_a_packet_is_followed_to_another_node_and_to_the_rule_that_drops_it(
    lab: Lab, pods: dict[str, str]
) -> None:
    found = traced(lab, "-S", "flow-a", "-D", "flow-far")
    assert ways(found) == {
        "node-1": [("SpoofGuard", "Forwarded"), ("Forwarding", "Forwarded")],
        "node-2": [("Forwarding", "Received"), ("Forwarding", "Delivered")],
    }
    ends = {one.get("tunnelDstIP") for result in found["results"] for one in result["observations"]}
    assert ends == {None, TUNNEL_END}
    # each Node writes its own as soon as it can
    by_node = sorted(found["results"], key=lambda result: str(result["node"]))
    each = [one for result in by_node for one in result["observations"]]
    assert [one["table"] for one in each] == ["SpoofGuard", "Output", "Classifier", "Output"]
    assert all(
        one["flow"].startswith(f"table={one['table']},priority=") and one["explanation"] for one in each
    )
    assert each[2]["explanation"] == "it came in by port antrea-tun0, the geneve tunnel"
    assert (found["explain"]["verdict"], found["explain"]["agrees"]) == ("Allow", True)
    lab.api.kubectl("label", "pod", "flow-far", "flow=far", "--overwrite")
    lab.api.apply(DENY)
    try:
        phase = ("get", "acnp", "flow-deny", "-o", "jsonpath={.status.phase}")
        wait_for("the policy is realized", lambda: lab.api.kubectl(*phase) == "Realized", seconds=60)
        dropped = traced(lab, "-S", "flow-a", "-D", "flow-far")
    finally:
        lab.api.kubectl("delete", "acnp", "flow-deny")
    last = next(result for result in dropped["results"] if result["node"] == "node-2")["observations"][-1]
    flow = last.pop("flow")
    assert flow.startswith("table=AntreaPolicyIngressRule,priority=")
    assert "conj_id=" in flow
    said = last.pop("explanation")
    assert said.startswith(
        "rule no-icmp of AntreaClusterNetworkPolicy:flow-deny with action Drop selects it as received, at priority "
    )
    # the evaluator, which shares no code with what enforces, names the same rule
    explained = dropped["explain"]
    assert (explained["verdict"], explained["agrees"]) == ("Drop", True)
    assert "no-icmp" in last.pop("explain")
    assert last == {
        "component": "NetworkPolicy",
        "componentInfo": "IngressMetric",
        "action": "Dropped",
        "networkPolicy": "AntreaClusterNetworkPolicy:flow-deny",
        "networkPolicyRule": "no-icmp",
        "table": "AntreaPolicyIngressRule",
    }
    wait_for("no flow of a trace is left", lambda: flows(lab) == 0, seconds=30)
    assert lab.api.kubectl("get", "traceflows", "-o", "name") == ""


def test_the_first_packet_of_live_traffic_is_traced_and_arrives_as_it_was_sent(
    lab: Lab, pods: dict[str, str]
) -> None:
    inside = pod_namespace(lab, "node-1", pods["flow-a"])
    spec = {"source": {"namespace": "default", "pod": "flow-a"}, "destination": {"ip": pods["flow-far"]}}
    packet = {"ipHeader": {"protocol": 1}}
    live = {"liveTraffic": True, "timeout": 60, "packet": packet}
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Traceflow", "metadata": {"name": "live"}}
    lab.api.apply(yaml.safe_dump({**head, "spec": spec | live}))
    try:
        wait_for("the flows of the trace are there", lambda: flows(lab) > 10, seconds=60)
        ping = subprocess.run([*inside, "ping", "-c", "1", "-W", "5", pods["flow-far"]], check=False)
        assert ping.returncode == 0
        status: dict[str, Any] = {}

        def succeeded() -> bool:
            status.update(json.loads(lab.api.kubectl("get", "traceflow", "live", "-o", "json"))["status"])
            return bool(status["phase"] == "Succeeded")

        wait_for("the trace is complete", succeeded, seconds=60)
    finally:
        lab.api.kubectl("delete", "traceflow", "live")
    assert ways(status)["node-2"] == [("Forwarding", "Received"), ("Forwarding", "Delivered")]
    captured = status["capturedPacket"]
    assert (captured["srcIP"], captured["dstIP"], captured["length"]) == (
        pods["flow-a"],
        pods["flow-far"],
        84,
    )
    wait_for("no flow of a trace is left", lambda: flows(lab) == 0, seconds=30)
