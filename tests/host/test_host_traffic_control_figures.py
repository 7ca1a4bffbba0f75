"""What TrafficControl costs, in figures: `python -m benchmarks.traffic_control` prints them (docs/benchmarks.md)."""

from __future__ import annotations

import os
import statistics
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from agent_process import agent_process
from figure import Against, show
from test_host_traffic_control import (
    ADDRESSES,
    CABLE,
    CONFIG,
    CONTROLS,
    api,
    connected,
    control,
    flows,
    marked,
    ports,
)
from test_host_traffic_control_tunnel import REMOTES, node

if TYPE_CHECKING:
    from pathlib import Path

    from agent_process import AgentProcess
    from conftest import Namespaces

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
ROUNDS, SECONDS = 5, 1.5
MIN_SHARE = 0.85
"""Of the transactions without a TrafficControl."""
SERVER = """
import socket, threading
def serve(client):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := client.recv(1 << 16):
        if len(data) == 1:
            client.sendall(data)
server = socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
MEASURE = """
import socket, sys, time
to, seconds, stream = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "stream"
with socket.create_connection((to, 80), timeout=10) as peer:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    done, block, begin = 0, b"x" * (1 << 17), time.perf_counter()
    while (past := time.perf_counter() - begin) < seconds:
        if stream:
            peer.sendall(block)
        else:
            peer.sendall(b".")
            peer.recv(1)
        done += 1
    if stream:
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)
        past = time.perf_counter() - begin
    print(done * len(block) * 8 / past / 1e6 if stream else done / past)
"""


class Case(NamedTuple):
    """A TrafficControl of the Pod that serves."""

    name: str
    spec: dict[str, Any]


MIRROR = Case("mirror", {"action": "Mirror", "targetPort": {"ovsInternal": {"name": "tap0"}}})
DEVICE = Case("mirror_device", {"action": "Mirror", "targetPort": {"device": {"name": "target1"}}})
GENEVE = Case("mirror_geneve", {"action": "Mirror", "targetPort": {"geneve": {"remoteIP": REMOTES[0]}}})
REDIRECT = Case(
    "redirect",
    {
        "action": "Redirect",
        "targetPort": {"device": {"name": "target1"}},
        "returnPort": {"device": {"name": "return1"}},
    },
)


def measured(netns: Namespaces, space: str, what: str) -> float:
    """Transactions a second, or Mbit/s."""
    words = f"{sys.executable} -c '{MEASURE}' {ADDRESSES['a'][0]} {SECONDS} {what}"
    return float(netns.sh(words, space))


async def applied(agent: AgentProcess, case: Case) -> None:
    """Packets go there and, where they do, come back."""
    control(agent.api, case.name, **case.spec)
    await agent.until(lambda agent: len(marked(agent)) == 2, "the flows stand")
    if "returnPort" in case.spec:
        await agent.until(lambda agent: flows(agent, "in_port=return1", "table=Classifier"), "the way back")


async def withdrawn(agent: AgentProcess, case: Case) -> None:
    agent.api.drop(f"{CONTROLS}/{case.name}")
    await agent.until(lambda agent: not flows(agent, "reg9"), "no flow is left")


def shown(case: Case, what: str, unit: str, values: dict[str, list[float]], least: float | None) -> None:
    """The figure beside that without a TrafficControl, of the same round."""
    show(
        f"{what}_{case.name}",
        unit,
        values[what],
        against=Against(f"{what}_without", tuple(values[f"{what}_off"])),
    )
    lost = [100 * (1 - one / other) for one, other in zip(values[what], values[f"{what}_off"], strict=True)]
    show(f"{what}_{case.name}_lost", "%", lost, target=None if least is None else 100 * (1 - least))


async def test_what_a_connection_loses_to_each_kind_of_target(netns: Namespaces, tmp_path: Path) -> None:
    async with node(netns, tmp_path) as (agent, pods, _):
        netns.sh(CABLE)
        with netns.serving(pods["a"], SERVER):
            for case in (MIRROR, DEVICE, GENEVE, REDIRECT):
                values: dict[str, list[float]] = {}
                for number in range(ROUNDS):
                    for on in (True, False) if number % 2 else (False, True):
                        if on:
                            await applied(agent, case)
                        for what in ("rr", "stream"):
                            found = measured(netns, pods["b"], what)
                            values.setdefault(what if on else f"{what}_off", []).append(found)
                        if on:
                            await withdrawn(agent, case)
                shown(case, "rr", "a second", values, MIN_SHARE if case is not REDIRECT else None)
                shown(case, "stream", "Mbit/s", values, None)
                assert statistics.median(values["rr"]) > 0


async def test_what_the_gate_costs_without_a_trafficcontrol(netns: Namespaces, tmp_path: Path) -> None:
    """Flows besides the default one of the table, and ports."""
    async with agent_process(netns, tmp_path, dict(os.environ), CONFIG, api()) as agent:
        await connected(netns, agent)
        own = [line for line in flows(agent, "table=TrafficControl") if "priority=0" not in line]
        show("flows_without_a_trafficcontrol", "flows", [len(own) + len(flows(agent, "reg9"))], target=0)
        assert "tap0" not in ports(agent)
