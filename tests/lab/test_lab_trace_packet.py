"""`antctl trace-packet` in a real agent: the way of a packet on one Node, to another one, from it, and to nowhere."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from agent_node import antctl, pod_namespace
from quiet_pod import quiet_pods

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.lab.cluster import Lab

PODS = {"trace-a": "node-1", "trace-b": "node-1", "trace-far": "node-2"}
TUNNEL = 32768
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
        ("default/trace-a", "default/trace-b", LOCAL, "trace-b"),
        ("default/trace-a", "default/trace-far", ROUTED, TUNNEL),
        ("default/trace-far", "default/trace-a", ROUTED, "trace-a"),
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


def test_an_agent_shows_the_policies_and_groups_that_it_was_sent(lab: Lab) -> None:
    for kind in ("networkpolicy", "appliedtogroup", "addressgroup", "fqdncache"):
        assert antctl(lab, "node-1", "get", kind) == "\n"
