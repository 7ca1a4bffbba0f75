"""The three tiers of examples/three-tier under faults of the Node with their address, whoever serves Services in the cluster."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from agent_node import kill, pid_of, wait_ready
from own_lab import own_lab
from poll import CLIENTS, IP, owner, page, poll, vote, votes

from lab import cluster, fault
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

INGRESS = ("node-2", "node-3")
COMBINATIONS = {
    "proxy-all": Settings(nodes=3, kube_proxy="none", proxy_all=True),
    "kube-proxy-iptables": Settings(nodes=3),
    "kube-proxy-nftables": Settings(nodes=3, kube_proxy="nftables"),
    "without-antrea-proxy": Settings(nodes=3, agent={"antreaProxy": {"enable": False}}),
}
MAX_SECONDS = 5.0
"""Seconds without a page that a test on a busy machine lets pass; `python -m benchmarks.service_failover` measures."""
CLIENT = """
import socket, sys, threading, time
answered, end = [], threading.Event()
def ask():
    try:
        with socket.create_connection((sys.argv[1], 80), timeout=5) as stream:
            stream.sendall(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
            if stream.recv(64):
                answered.append(time.monotonic())
    except OSError:
        pass
threading.Thread(target=lambda: (sys.stdin.readline(), end.set()), daemon=True).start()
print("asking", flush=True)
while not end.is_set():
    threading.Thread(target=ask, daemon=True).start()
    time.sleep(0.05)
time.sleep(1)
times = sorted(answered)
print(max(b - a for a, b in zip(times, times[1:])), flush=True)
"""


@pytest.fixture(scope="module", params=COMBINATIONS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """All Pods are on node-1, which does not have the address."""
    with own_lab("poll", COMBINATIONS[request.param]) as found, poll(found, INGRESS, on="node-1"):
        yield found


@contextlib.contextmanager
def cordoned(lab: Lab, where: str) -> Iterator[None]:
    lab.api.kubectl("cordon", where)
    try:
        yield
    finally:
        lab.api.kubectl("uncordon", where)


@contextlib.contextmanager
def powerless(lab: Lab, where: str) -> Iterator[None]:
    fault.inject(lab, where, "power-off")
    try:
        yield
    finally:
        fault.inject(lab, where, "power-on")


@contextlib.contextmanager
def cut(lab: Lab, where: str) -> Iterator[None]:
    fault.inject(lab, where, "cut-link")
    try:
        yield
    finally:
        fault.inject(lab, where, "heal-link")


@contextlib.contextmanager
def killed(lab: Lab, where: str) -> Iterator[None]:
    """The agent starts again, and the address stays."""
    kill(pid_of(lab, where, "antrea-agent"))
    yield


@contextlib.contextmanager
def asking(lab: Lab) -> Iterator[dict[str, float]]:
    """Both clients ask 20 times a second; in the end the longest time without an answer of each."""
    gaps: dict[str, float] = {}
    clients = {
        machine: subprocess.Popen(
            cluster.enter(lab, machine, [sys.executable, "-c", CLIENT, IP]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for machine in CLIENTS
    }  # fmt: skip
    try:
        for client in clients.values():
            assert client.stdout is not None
            assert client.stdout.readline() == "asking\n"
        yield gaps
        gaps |= {name: float(client.communicate("\n", timeout=60)[0]) for name, client in clients.items()}
    finally:
        for client in clients.values():
            client.kill()
            client.wait()


@pytest.mark.parametrize("lost_by", [cordoned, powerless, cut, killed])
def test_the_page_stays_with_its_clients(
    lab: Lab, lost_by: Callable[[Lab, str], contextlib.AbstractContextManager[None]]
) -> None:
    wait_for("a Node for the address", lambda: owner(lab, "node-1"), seconds=60)
    lost = owner(lab, "node-1")
    before = votes(lab, "outside")["blue"]
    with asking(lab) as gaps:
        with lost_by(lab, lost):
            if lost_by is not killed:
                wait_for("a next Node", lambda: owner(lab, "node-1") not in ("", lost), seconds=60)
            for machine in CLIENTS:
                wait_for(f"the page for {machine}", partial(page, lab, machine), seconds=60)
                vote(lab, machine, "blue")
        wait_ready(lab, lost)
        wait_for("the address back", lambda: owner(lab, "node-1") == lost, seconds=120)
        for machine in CLIENTS:
            wait_for(f"the page for {machine}", partial(page, lab, machine), seconds=60)
    print(lost_by.__name__, gaps)
    assert max(gaps.values()) < MAX_SECONDS
    assert votes(lab, "gateway")["blue"] == before + len(CLIENTS)
