"""How soon is the change of one Endpoint in the switch, and in kube-proxy's rules, by how many Services there are?

Part of `proxy_scale`, by itself `python -m benchmarks.proxy_change [CHANGES [SERVICES...]]`; needs root. The real agent with Open vSwitch (userspace
datapath) and the real kube-proxy of mode nftables run by turns on the Node of `agent_node`, with the same kube-apiserver and Services of
5 Endpoints each. A change is one Endpoint that becomes unready, or ready again. Its time begins with the request to kube-apiserver and
ends when the switch, or the kernel, reports it to whoever monitors it. kube-proxy may synchronise every 20 ms, not once a second as by default.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol

from figure import Against, show

from benchmarks.agent_node import AgentNode, agent_node
from benchmarks.known_loop import name_starved_now
from benchmarks.kube_api import store
from benchmarks.proxy_start import kube_proxy
from benchmarks.service_lists import ENDPOINTS, address, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANGES, SERVICES = 100, (10, 1_000, 10_000)
ROUNDS = 5
MILLISECONDS = 100.0
"""Target of the 99th percentile."""
QUIET, PAUSE, WAIT_SECONDS = 2.0, 0.2, 30.0
"""Seconds after a start, and between changes; how long one may take."""
SLICES = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
MERGE = "application/merge-patch+json"
SOONEST = {"nftables": {"minSyncPeriod": "20ms"}}
ADD_MEMBERSHIP, NFTABLES, RCVBUFFORCE = 1, 7, 33
"""Options of netlink(7) and socket(7), and the group of nf_tables (linux/netfilter/nfnetlink.h)."""


class Source(Protocol):
    """Reports of changes."""

    def read(self) -> bytes:
        """The next ones; empty at the end."""

    def close(self) -> None:
        """End what `read` waits for."""


class SwitchReports:
    """Of flows, by a monitor of OpenFlow."""

    def __init__(self, node: AgentNode) -> None:
        place = node.directory
        words = (
            "ovs-ofctl",
            "--no-names",
            f"--unixctl={place}/monitor.ctl",
            "monitor",
            f"unix:{place}/br-int.mgmt",
        )
        self._running = subprocess.Popen(
            [*words, "watch:!initial"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def read(self) -> bytes:
        assert self._running.stdout is not None
        return self._running.stdout.readline()

    def close(self) -> None:
        self._running.terminate()
        self._running.wait()


class RuleReports:
    """Of nf_tables, by the kernel."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
        self._socket.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 64 << 20)
        self._socket.bind((0, 0))
        self._socket.setsockopt(270, ADD_MEMBERSHIP, NFTABLES)
        self._socket.settimeout(PAUSE)
        self._ended = False

    def read(self) -> bytes:
        while not self._ended:
            try:
                return self._socket.recv(1 << 20)
            except TimeoutError:
                continue
        return b""

    def close(self) -> None:
        self._ended = True


class Monitor:
    """When the report with a certain text came."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._changed = threading.Condition()
        self._mark, self._at = b"", 0.0
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def expect(self, mark: str) -> None:
        """From now on, the next report with this text counts."""
        with self._changed:
            self._mark, self._at = mark.encode(), 0.0

    def when(self) -> float:
        """Monotonic time of that report."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._at, WAIT_SECONDS):
                sys.exit(f"no report of {self._mark.decode()} within {WAIT_SECONDS:g} s")
            return self._at

    def close(self) -> None:
        self._source.close()
        self._thread.join()

    def _follow(self) -> None:
        while report := self._source.read():
            with self._changed:
                if self._mark and not self._at and self._mark in report:
                    self._at = time.monotonic()
                    self._changed.notify_all()


@contextmanager
def monitoring(source: Source) -> Iterator[Monitor]:
    found = Monitor(source)
    time.sleep(QUIET)
    try:
        yield found
    finally:
        found.close()


def endpoints(number: int, *, ready: bool) -> list[dict[str, Any]]:
    """Of one Service; the first of them changes."""
    rows = []
    for one in range(ENDPOINTS):
        there = ready or one > 0
        conditions = {"ready": there, "serving": there}
        ip = address(number * ENDPOINTS + one, 10)
        rows.append({"addresses": [ip], "nodeName": "n2", "conditions": conditions})
    return rows


def flow_mark(number: int) -> str:
    """In the flow that translates to the Endpoint."""
    return f"reg3={int(ip_address(address(number * ENDPOINTS, 10))):#x}"


def rule_mark(number: int) -> str:
    """In the name of the Service's chain."""
    return f"shop/service-{number}/tcp/http"


def in_switch(node: AgentNode, numbers: list[int]) -> list[float]:
    """Milliseconds of each change, by the agent."""
    node.start_agent()
    node.wait_ready()
    with monitoring(SwitchReports(node)) as monitor:
        found = [took(node, monitor, number, flow_mark(number)) for number in numbers]
    node.end_agent()
    return [one for pair in found for one in pair]


def in_rules(node: AgentNode, numbers: list[int], services: int) -> list[float]:
    """Milliseconds of each change, by kube-proxy."""
    with kube_proxy(node, "nftables", services, **SOONEST), monitoring(RuleReports()) as monitor:
        found = [took(node, monitor, number, rule_mark(number)) for number in numbers]
    return [one for pair in found for one in pair]


def took(node: AgentNode, monitor: Monitor, number: int, mark: str) -> tuple[float, float]:
    """Milliseconds until the first Endpoint of a Service is gone, and until it is back."""
    times = []
    for ready in (False, True):
        monitor.expect(mark)
        began = time.monotonic()
        patch = {"endpoints": endpoints(number, ready=ready)}
        node.api.request("PATCH", f"{SLICES}/service-{number}-x", patch, MERGE)
        times.append(1000 * (monitor.when() - began))
        time.sleep(PAUSE)
    return times[0], times[1]


def measure(services: int, changes: int) -> None:
    """Both by turns."""
    ours, theirs = list[float](), list[float]()
    with agent_node(0) as node:
        name_starved_now()
        node.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        store(stored(services))
        each = max(1, changes // ROUNDS // 2)
        for turn in range(ROUNDS):
            numbers = [(turn * each + one) * 7919 % services for one in range(each)]
            ours += in_switch(node, numbers)
            theirs += in_rules(node, numbers, services)
    name, other = f"proxy_change_{services}", "kube_proxy_nftables"
    show(name, "ms", ours, against=Against(other, tuple(theirs)))
    worst, their_worst = (sorted(times)[len(times) * 99 // 100] for times in (ours, theirs))
    show(f"{name}_p99", "ms", [worst], against=Against(other, (their_worst,)), target=MILLISECONDS)


def main(changes: int, counts: tuple[int, ...]) -> None:
    for services in counts:
        measure(services, changes)


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    main(asked[0] if asked else CHANGES, tuple(asked[1:]) or SERVICES)
