"""The lab is a real cluster: its nodes, its Pods and its DNS, with our agent as the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from quiet_pod import SERVING, quiet_pods

from lab import dns, node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[dict[str, str]]:
    """A Pod on each node; their addresses by name."""
    names = {f"web-{n.name}": n.name for n in lab.topology.nodes}
    with quiet_pods(lab, names, SERVING) as found:
        for name in names:
            lab.api.kubectl("label", "pod", name, f"app={name}")
        yield found


def test_nodes_run_the_real_kubelet_on_their_own_addresses(lab: Lab) -> None:
    nodes = lab.api.items("/api/v1/nodes")

    assert {n["metadata"]["name"]: n["status"]["addresses"] for n in nodes} == {
        name: [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        for name, address in (("node-1", "172.30.0.11"), ("node-2", "172.30.0.12"))
    }
    assert {n["status"]["nodeInfo"]["kubeletVersion"] for n in nodes} == {"v1.34.1"}


def test_pods_on_different_nodes_ping_and_fetch_each_other(lab: Lab, pods: dict[str, str]) -> None:
    target = pods["web-node-2"]

    ping = lab.api.kubectl("exec", "web-node-1", "--", "ping", "-c", "3", "-W", "2", target)
    name = lab.api.kubectl("exec", "web-node-1", "--", "curl", "-s", f"http://{target}:8080/hostname")

    assert "3 packets transmitted, 3 received, 0% packet loss" in ping
    assert name == "web-node-2"


def test_a_service_is_found_by_its_dns_name_and_reached_by_its_address(
    lab: Lab, pods: dict[str, str]
) -> None:
    lab.api.kubectl("expose", "pod", "web-node-2", "--name=web", "--port=80", "--target-port=8080")
    try:
        answer = lab.api.kubectl(
            "exec",
            "web-node-1",
            "--",
            "curl",
            "-s",
            "--retry",
            "5",
            "--retry-all-errors",
            "http://web/hostname",
        )
    finally:
        lab.api.kubectl("delete", "service", "web")

    assert answer == "web-node-2"


def test_dns_answers_from_every_node(lab: Lab) -> None:
    assert {n.name: dns.answers(lab.record, lab.topology, n.name) for n in lab.topology.nodes} == {
        "node-1": True,
        "node-2": True,
    }


def test_pods_reach_the_external_host_through_the_gateway(lab: Lab) -> None:
    out = node.execute(lab.record, "node-1", "ping", "-c", "2", "-W", "2", "192.0.2.10")

    assert "2 received, 0% packet loss" in out


def test_a_node_sees_no_python_and_nothing_of_the_machines_home(lab: Lab) -> None:
    out = node.execute(
        lab.record, "node-1", "sh", "-c", "python3 -V 2>&1; ls -A /root /usr/lib/python3.11 /usr/lib/python3"
    )

    assert "Permission denied" in out
    assert out.split("\n", 1)[1] == "/root:\n\n/usr/lib/python3:\n\n/usr/lib/python3.11:\n"


def test_what_a_node_writes_below_etc_stays_on_the_node(lab: Lab) -> None:
    node.execute(lab.record, "node-1", "sh", "-c", "echo mine > /etc/lab-test; hostname > /etc/hostname")

    assert (
        node.execute(lab.record, "node-2", "sh", "-c", "ls /etc/lab-test 2>/dev/null; cat /etc/hostname")
        == "node-2\n"
    )
