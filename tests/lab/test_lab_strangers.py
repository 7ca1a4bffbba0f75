"""Half-open, silent and half-sent connections to every port where a lab's programs listen: the product continues, within bounded memory."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import stranger_flood
from agent_node import antctl, pod_namespace, ready
from quiet_pod import SERVING, quiet_pods
from test_lab_flow_visibility import aggregator, inside, rows  # noqa: F401 (a fixture)

from antrea.errors import Unavailable
from lab import node
from lab.process import run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

NODES = ("node-1", "node-2")
LISTENING = re.compile(r"^\S+\s+\d+\s+\d+\s+(\S+):(\d+)\s+\S+\s+users:\(\(\"[^\"]*\",pid=(\d+)", re.MULTILINE)
PROGRAM = re.compile(r"antrea[-.](agent|controller|flow)")
"""In the words of a process of ours."""
EXPECTED = {"agent": {10350, 10351}, "controller": {10349}, "flow": {10348, 14739, 14740}}
"""Ports by program, at least."""
MAX_GROWTH_MIB = 160
MAX_HELD = 1500
"""Connections that the program of a port has: 1,000 of strangers, and those of agents and the API server. There are twice 1,200 strangers."""
POLICY = """
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: strangers, namespace: default}
spec:
  priority: 5
  appliedTo: [{podSelector: {matchLabels: {strangers: serves}}}]
  ingress: [{name: nothing-else, action: Drop, ports: [{port: 8081}]}]
"""


class Listening(NamedTuple):
    """A port of a program."""

    program: str
    pid: int
    host: str
    port: int


def listening(words: list[str], own: str) -> list[Listening]:
    """Ports of our programs in a network namespace that other hosts reach; `own` is its address."""
    text = subprocess.check_output([*words, "ss", "-Hltnp"], text=True)
    found = []
    for address, port, pid in LISTENING.findall(text):
        host = address.strip("[]").partition("%")[0]
        program = PROGRAM.search(Path(f"/proc/{pid}/cmdline").read_text().replace("_", "-"))
        if program and not host.startswith("127."):
            found.append(
                Listening(program[1], int(pid), own if host in ("*", "::", "0.0.0.0") else host, int(port))
            )
    return found


def network(lab: Lab, where: str) -> list[str]:
    """The words that bring a command of this machine into the network namespace of a Node."""
    return ["nsenter", f"--net=/proc/{node.init_pid(lab.record, where)}/ns/net"]


def all_listening(lab: Lab) -> list[Listening]:
    """Of both Nodes, and of the aggregator's Pod."""
    items = lab.api.items("/api/v1/nodes")
    addresses = {
        one["metadata"]["name"]: next(
            a["address"] for a in one["status"]["addresses"] if a["type"] == "InternalIP"
        )
        for one in items
    }
    found = [one for name in NODES for one in listening(network(lab, name), addresses[name])]
    [pod] = lab.api.items("/api/v1/namespaces/flow-aggregator/pods?labelSelector=app%3Dflow-aggregator")
    ip = pod["status"]["podIP"]
    return found + listening(pod_namespace(lab, pod["spec"]["nodeName"], ip), ip)


def memory_mib(pid: int) -> int:
    [line] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(line) >> 10


@contextlib.contextmanager
def flooded(lab: Lab, ports: list[Listening], unused: str) -> Iterator[None]:
    """All ports are flooded; in the end some connections must have been dropped and made again."""
    targets = json.dumps([(one.host, one.port) for one in ports])
    words = [*network(lab, "node-1"), sys.executable, "-P", stranger_flood.__file__, targets, unused]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            begun = json.loads(process.stdout.readline())
            assert begun["connections"] == 2 * stranger_flood.EACH * len(ports)
            yield
            ended = json.loads(process.communicate("\n", timeout=60)[0])
            print(begun, ended)
            assert ended["reconnects"] > 0
        finally:
            process.kill()


def sockets(words: list[str], *options: str) -> list[list[str]]:
    """Words of the lines that ss prints. Raises Unavailable if it fails, as it may while many connections come and go."""
    return [line.split() for line in run([*words, "ss", "-Htn", *options]).splitlines()]


def held(words: list[str], port: int) -> int:
    """Connections of a port that its program has accepted; too many if they cannot be counted."""
    here = f"( sport = :{port} )"
    try:
        waiting = sum(int(line[1]) for line in sockets(words, "-l", here))
        return len(sockets(words, "state", "established", here)) - waiting
    except Unavailable:
        return sys.maxsize


def check_held(ports: list[Listening]) -> None:
    """No program holds more connections than it may."""
    for one in ports:
        words = ["nsenter", f"--net=/proc/{one.pid}/ns/net"]
        wait_for(
            f"connections of {one} below {MAX_HELD}",
            lambda words=words, port=one.port: held(words, port) < MAX_HELD,  # type: ignore[misc]
            seconds=30,
        )


def unused_address(ports: list[Listening]) -> str:
    """Of the Nodes' network."""
    host = next(one.host for one in ports if one.program == "agent" and "." in one.host)
    return f"{host.rpartition('.')[0]}.239"


@pytest.fixture
def streaming(lab: Lab, aggregator: None) -> None:  # noqa: F811 (the fixture)
    """The aggregator serves streams, too: its configuration takes effect at run time."""
    shown = json.loads(
        lab.api.kubectl("-n", "flow-aggregator", "get", "cm", "flow-aggregator-configmap", "-o", "json")
    )
    text = shown["data"]["flow-aggregator.conf"] + "\nflowStreamService: {enable: true}\n"
    patch = json.dumps({"data": {"flow-aggregator.conf": text}})
    lab.api.kubectl(
        "-n", "flow-aggregator", "patch", "cm", "flow-aggregator-configmap", "--type=merge", "-p", patch
    )
    wait_for("streams", lambda: any(one.port == 14740 for one in all_listening(lab)), seconds=180)


@pytest.mark.usefixtures("streaming")
def test_strangers_on_every_port_keep_nobody_from_work(lab: Lab) -> None:
    ports = [one for one in all_listening(lab) if ":" not in one.host]
    for program, numbers in EXPECTED.items():
        assert {one.port for one in ports if one.program == program} >= numbers, ports
    before = {one.pid: memory_mib(one.pid) for one in ports}
    with (
        flooded(lab, ports, unused_address(ports)),
        quiet_pods(lab, {"strangers-asks": "node-1", "strangers-serves": "node-2"}, SERVING) as ips,
    ):
        lab.api.kubectl("label", "pod", "strangers-serves", "strangers=serves")
        lab.api.apply(POLICY)
        lab.api.kubectl(
            "wait",
            "networkpolicies.crd.antrea.io",
            "strangers",
            "--for=jsonpath={.status.phase}=Realized",
            "--timeout=60s",
            seconds=70,
        )
        client, server = ips["strangers-asks"], ips["strangers-serves"]
        asks = [*pod_namespace(lab, "node-1", client), "curl", "-sS", "--max-time", "10"]
        assert (
            subprocess.check_output([*asks, f"http://{server}:8080/hostname"], text=True)
            == "strangers-serves"
        )
        wait_for("the connection in the log", lambda: rows(lab, client, 8080), seconds=60)
        check_held(ports)
        assert all(ready(lab, name) for name in NODES)
        assert (
            json.loads(inside(lab, "antctl", "get", "recordmetrics", "-o", "json"))["numRecordsReceived"] > 0
        )
        assert "node-1" in antctl(lab, "node-1", "get", "agentinfo")
        assert "strangers" in lab.api.kubectl(
            "get", "networkpolicies.controlplane.antrea.io", "-A", "-o", "yaml"
        )
        ended = {f"{one.program} {one.pid}" for one in ports if not Path(f"/proc/{one.pid}").exists()}
        assert not ended, "programs that kubelet started again during the flood"
        grown: dict[str, Any] = {
            f"{one.program} {one.pid}": memory_mib(one.pid) - before[one.pid] for one in ports
        }
        print(grown, sorted((one.program, one.host, one.port) for one in ports))
        assert max(grown.values()) < MAX_GROWTH_MIB
        members = json.loads(antctl(lab, "node-1", "get", "memberlist", "-o", "json"))
        assert {one["status"] for one in members} == {"Alive"}
    lab.api.kubectl("delete", "networkpolicies.crd.antrea.io", "strangers")
