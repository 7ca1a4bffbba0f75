"""How long after kube-apiserver's 201 is the first packet judged by a new policy, on each of three Nodes?

`python -m benchmarks.policy_latency [ROUNDS]`: a lab of three Nodes, two Pods on each; one sends the other a datagram every 2 ms,
each from a new port, so that each is a new connection. A policy that isolates the receivers is created, and the last datagram
that came through tells, for each Node, since when it is enforced. Beside 0, 1,000 and 10,000 policies that stand and select
the senders. Figures are milliseconds, to the 2 ms between datagrams.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import msgspec
from figure import show

from lab import cluster, node
from lab.images import AGNHOST
from lab.process import wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

ROUNDS = 40
STANDING = (0, 1_000, 10_000)
TARGET = 150.0
INTERVAL = 0.002
PORT = 9009
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
PAGE = 500
"""Policies that one kubectl takes."""


class Arrival(msgspec.Struct, frozen=True):
    """The newest datagram that came: its number, and when it was sent, in seconds since 1970."""

    number: int
    sent: float


class Flow:
    """One sender and one receiver of a Node, as processes in their Pods' network namespaces."""

    def __init__(self, words: dict[str, list[str]], address: str) -> None:
        program = [sys.executable, str(Path(__file__))]
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._last = Arrival(0, 0.0)
        receiver = [*words["server"], *program, "receive", address]
        self._receiver = subprocess.Popen(receiver, stdout=subprocess.PIPE, env=env)
        self._sender = subprocess.Popen([*words["client"], *program, "send", address], env=env)
        assert self._receiver.stdout is not None
        self._out = self._receiver.stdout.fileno()
        self._part = b""
        os.set_blocking(self._out, False)

    def last(self) -> Arrival:
        """What the receiver has said by now."""
        with contextlib.suppress(BlockingIOError):
            while found := os.read(self._out, 1 << 16):
                *lines, self._part = (self._part + found).split(b"\n")
                if lines:
                    number, sent = lines[-1].split()
                    self._last = Arrival(int(number), float(sent))
        return self._last

    def moves(self) -> bool:
        """Whether datagrams come through now."""
        return time.time() - self.last().sent < 0.1

    def end(self) -> None:
        """Both processes."""
        for process in (self._sender, self._receiver):
            process.kill()
            process.wait()


def send(address: str) -> None:
    """A numbered datagram from a new port at every interval, for ever."""
    number, due = 0, time.monotonic()
    while True:
        number += 1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(f"{number} {time.time():.6f}\n".encode(), (address, PORT))
        due += INTERVAL
        time.sleep(max(0.0, due - time.monotonic()))


def receive(address: str) -> None:
    """Print what comes, for ever."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((address, PORT))
        while True:
            print(udp.recv(100).decode(), end="", flush=True)


def pod(name: str, where: str) -> dict[str, Any]:
    container = {"name": "main", "image": AGNHOST, "imagePullPolicy": "Never", "args": ["pause"]}
    spec = {"nodeName": where, "terminationGracePeriodSeconds": 0, "containers": [container]}
    labels = {"part": name.partition("-")[0]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def policy(name: str, ingress: list[dict[str, Any]], part: str = "server") -> dict[str, Any]:
    spec = {"podSelector": {"matchLabels": {"part": part}}, "policyTypes": ["Ingress"], "ingress": ingress}
    metadata = {"name": name, "labels": {"bench": "latency"}}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def standing(number: int) -> dict[str, Any]:
    """For the senders, whom it leaves open to a network and a port of its own."""
    block = {"ipBlock": {"cidr": f"10.{number >> 8 & 255}.{number & 255}.0/24"}}
    ports = [{"protocol": "TCP", "port": 1 + number % 60_000}]
    return policy(f"standing-{number}", [{"from": [block], "ports": ports}], "client")


def listed(items: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def flows(lab: Lab, names: list[str]) -> Iterator[tuple[str, Flow]]:
    """One on each Node, of Pods that are Ready."""
    pods = [pod(f"{part}-{name}", name) for name in names for part in ("client", "server")]
    lab.api.apply(listed(pods))
    lab.api.kubectl("wait", "--for=condition=Ready", "pods", "--all", "--timeout=90s")
    found = {
        one["metadata"]["name"]: one["status"]["podIP"]
        for one in lab.api.items("/api/v1/namespaces/default/pods")
    }
    for name in names:
        words = {
            part: node.inside_pod(lab.record, name, found[f"{part}-{name}"]) for part in ("client", "server")
        }
        yield name, Flow(words, found[f"server-{name}"])


def latency(lab: Lab, flows: dict[str, Flow]) -> list[float]:
    """Milliseconds from the answer to the first datagram that was not let through, on each Node."""
    wait_for("open ways", lambda: all(flow.moves() for flow in flows.values()), seconds=60)
    lab.api.request("POST", POLICIES, policy("shut", []))
    answered = time.time()
    wait_for("closed ways", lambda: not any(flow.moves() for flow in flows.values()), seconds=60, step=0.05)
    last = [flow.last().sent + INTERVAL for flow in flows.values()]
    lab.api.request("DELETE", f"{POLICIES}/shut")
    return [max(0.0, one - answered) * 1000 for one in last]


def stand(lab: Lab, have: int, wanted: int) -> None:
    """More policies, until all agents enforce them."""
    for first in range(have, wanted, PAGE):
        numbers = range(first, min(first + PAGE, wanted))
        lab.api.kubectl("create", "-f", "-", stdin=listed([standing(n) for n in numbers]), seconds=300)
    for name in (machine.name for machine in lab.topology.nodes):
        # a row for each policy and its only rule
        wait_for(f"{wanted} policies on {name}", partial(enforced, lab, name, wanted), seconds=900, step=2)


def enforced(lab: Lab, name: str, wanted: int) -> bool:
    agent = next(
        one["metadata"]["name"]
        for one in lab.api.items("/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dantrea-agent")
        if one["spec"]["nodeName"] == name
    )
    count = ("sh", "-c", "antctl get networkpolicy | tail -n +2 | wc -l")
    words = ("-n", "kube-system", "exec", agent, "-c", "antrea-agent", "--", *count)
    return int(lab.api.kubectl(*words)) >= wanted


def main() -> None:
    """Exit code 0 with figures that are met or missed."""
    if sys.argv[1:2] in (["send"], ["receive"]):
        {"send": send, "receive": receive}[sys.argv[1]](sys.argv[2])
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    record = Record(f"latency{os.getpid()}")
    with ExitStack() as stack:
        stack.callback(cluster.down, record)
        lab = cluster.up(record, Settings(nodes=3), lambda _line: None)
        names = [machine.name for machine in lab.topology.nodes]
        found = dict(flows(lab, names))
        for flow in found.values():
            stack.callback(flow.end)
        have = 0
        for wanted in STANDING:
            stand(lab, have, wanted)
            have = wanted
            values = [one for _ in range(rounds) for one in latency(lab, found)]
            show(f"policy_latency_p50_{wanted}", "ms", values)
            show(
                f"policy_latency_p99_{wanted}",
                "ms",
                [quantiles(values, n=100, method="inclusive")[98]],
                target=TARGET,
            )


if __name__ == "__main__":
    main()
