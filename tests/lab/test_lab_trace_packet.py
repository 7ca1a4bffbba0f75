"""What antctl says of packets before they are sent: the way that `trace-packet` shows in an agent, and what `explain` says from a workstation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import workstation
from agent_node import antctl, pod_namespace
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

PODS = {"trace-a": "node-1", "trace-b": "node-1", "trace-far": "node-2"}
TUNNEL = 32768
EXPLAINED = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: explained, namespace: default}
spec:
  podSelector: {matchLabels: {explained: far}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {}}], ports: [{port: 81}]}]
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.6).close()
except ConnectionRefusedError:
    print("arrived")
except TimeoutError:
    print("dropped")
"""
"""Nothing listens in these Pods."""
LOCAL = ["L3Forwarding", "L2ForwardingCalc"]
ROUTED = ["L3Forwarding", "L3DecTTL", "L2ForwardingCalc"]


@pytest.fixture(scope="module")
def ports(lab: Lab) -> Iterator[dict[str, int]]:
    """Three Pods; the numbers of the ports that those of node-1 have there."""
    with quiet_pods(lab, PODS):
        found = json.loads(antctl(lab, "node-1", "get", "podinterface", "-n", "default", "-o", "json"))
        yield {row["name"]: row["ofPort"] for row in found}


def trace(lab: Lab, *words: str) -> tuple[list[str], str]:
    """Names of the tables in which flows acted, and the whole text."""
    text = antctl(lab, "node-1", "trace-packet", *words)
    return re.findall(r"^ ?\d+\. ([A-Za-z0-9]+): ", text, re.MULTILINE), text


@pytest.mark.parametrize(
    ("source", "destination", "way", "then"),
    [
        pytest.param("default/trace-a", "default/trace-b", LOCAL, "trace-b", marks=pytest.mark.wide),
        ("default/trace-a", "default/trace-far", ROUTED, TUNNEL),
        pytest.param("default/trace-far", "default/trace-a", ROUTED, "trace-a", marks=pytest.mark.wide),
        ("192.0.2.1", "default/trace-b", LOCAL, "trace-b"),
    ],
)
def test_a_traced_packet_takes_the_way_of_a_real_one(
    lab: Lab, ports: dict[str, int], source: str, destination: str, way: list[str], then: str | int
) -> None:
    tables, text = trace(lab, "-S", source, "-D", destination, "-f", "tcp,tcp_dst=80")
    assert tables[:2] == ["PipelineRootClassifier", "Classifier"]
    assert [table for table in tables if table in ROUTED] == way
    assert tables[-1] == "Output"
    assert f"-> output port is {ports[then] if isinstance(then, str) else then}\n" in text


def test_a_traced_packet_to_another_node_names_that_node_as_the_end_of_its_tunnel(
    lab: Lab, ports: dict[str, int]
) -> None:
    _, text = trace(lab, "-S", "default/trace-a", "-D", "default/trace-far")
    assert re.findall(r"set_field:(\S+)->tun_dst", text) == ["172.31.0.12"]
    assert "Note: real packets leave by this tunnel." in text
    where = ("get", "pods", "trace-a", "trace-far", "-o", "jsonpath={.items[*].status.podIP}")
    here, far = lab.api.kubectl(*where).split()
    ping = [*pod_namespace(lab, "node-1", here), "ping", "-c", "1", "-W", "5", far]
    assert subprocess.run(ping, capture_output=True, check=False).returncode == 0


def test_a_traced_packet_to_a_service_goes_to_its_cluster_ip(lab: Lab, ports: dict[str, int]) -> None:
    where = ("-n", "default", "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    tables, text = trace(lab, "-S", "default/trace-a", "-D", "default/kubernetes", "-f", "tcp,tcp_dst=443")
    assert f",nw_dst={lab.api.kubectl(*where)}," in text.splitlines()[0]
    assert tables[-1] == "Output"


def test_a_traced_packet_with_a_foreign_address_ends_in_the_spoof_guard(
    lab: Lab, ports: dict[str, int]
) -> None:
    tables, text = trace(lab, "-p", "default/trace-a", "-S", "192.0.2.1", "-D", "default/trace-b")
    assert tables == ["PipelineRootClassifier", "Classifier", "SpoofGuard"]
    assert text.endswith("Datapath actions: drop\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("-S", "default/trace-a", "-D", "default/none"), "Not Found: destination: neither a Pod nor a Service default/none found"),
        (("-S", "default/none"), "Not Found: source: Pod default/none not found"),
        (("-p", "default/trace-far"), "Not Found: input port not found: default/trace-far is neither a port of the bridge nor a Pod of this Node"),
    ],
)  # fmt: skip
def test_a_packet_of_a_pod_that_is_not_there_fails_in_one_sentence(
    lab: Lab, ports: dict[str, int], words: tuple[str, ...], error: str
) -> None:
    with pytest.raises(Unavailable) as no:
        antctl(lab, "node-1", "trace-packet", *words)
    assert f"Error: request to server failed: {error}\n" in str(no.value)


def explained(lab: Lab, port: int, code: int) -> dict[str, Any]:
    words = ("explain", "--from", "default/trace-a", "--to", "default/trace-far", "--port", f"{port}/tcp")
    found: dict[str, Any] = json.loads(workstation.run(lab, *words, "-o", "json", code=code).stdout)
    return found


def test_a_packet_is_explained_as_both_switches_and_the_network_treat_it(
    lab: Lab, ports: dict[str, int]
) -> None:
    where = ("get", "pods", "trace-a", "trace-far", "-o", "jsonpath={.items[*].status.podIP}")
    here, far = lab.api.kubectl(*where).split()
    inside = pod_namespace(lab, "node-1", here)

    def sent(port: int) -> str:
        command = [*inside, sys.executable, "-c", CONNECT, far, str(port)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    lab.api.kubectl("label", "pod", "trace-far", "explained=far")
    lab.api.apply(EXPLAINED)
    try:
        wait_for("the policy holds", lambda: sent(80) == "dropped", seconds=60)
        closed, opened = explained(lab, 80, 3), explained(lab, 81, 0)
        wait_for("a packet on another port", lambda: sent(81) == "arrived", seconds=60)
    finally:
        lab.api.kubectl("delete", "networkpolicy", "explained")
    assert (closed["verdict"], closed["direction"], opened["verdict"]) == ("Drop", "Ingress", "Allow")
    assert closed["changes"] == ["Add port 80/tcp to ingress rule 0 of K8sNetworkPolicy default/explained."]
    for found in (closed, opened):
        told = [(one["node"], one["direction"], one["agrees"]) for one in found["switches"]]
        assert told == [("node-1", "Egress", True), ("node-2", "Ingress", True)]
    assert any("IngressDefaultRule: " in flow for flow in closed["switches"][1]["flows"])


def test_an_agent_shows_the_policies_and_groups_that_it_was_sent(lab: Lab) -> None:
    for kind in ("networkpolicy", "appliedtogroup", "addressgroup", "fqdncache"):
        told = partial(antctl, lab, "node-1", "get", kind)
        wait_for(f"the end of every {kind} of before", lambda told=told: told() == "\n", seconds=60)  # type: ignore[misc]
