"""Five agents' gossip in five network namespaces, over real sockets: links are cut, processes killed and paused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antrea.outside.gossip.transport import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Namespaces

ROOT = Path(__file__).parents[2]
NAMES = [f"node-{number}" for number in range(1, 6)]
FOUND, FOUND_BY_FEW, TOGETHER = 2.75, 4.25, 3.0
"""Bounds of docs/membership.md, in seconds; test_outside_gossip.py keeps to them in virtual time."""
BUSY = 20.0
"""Seconds more that a machine may take that does other things as well."""


class Agent:
    """One process with what it has said."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
        )
        self.said: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    @property
    def living(self) -> set[str]:
        state = {line["node"]: line["alive"] for line in list(self.said) if "node" in line}
        return {name for name, alive in state.items() if alive}

    @property
    def acts(self) -> bool:
        return bool([False, *(line["has"] for line in list(self.said) if "has" in line)][-1])

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


class Cluster:
    """Namespaces on one bridge, each with an agent."""

    def __init__(self, netns: Namespaces, *, ipv6: bool) -> None:
        self.netns = netns
        self.spaces = {name: netns.make() for name in NAMES}
        self.addresses = {
            name: f"fd00:77::{number}" if ipv6 else f"10.77.0.{number}"
            for number, name in enumerate(NAMES, 1)
        }
        self.key = os.urandom(32).hex()
        self.agents: dict[str, Agent] = {}
        netns.sh("ip link add br0 type bridge; ip link set br0 up")
        for name, space in self.spaces.items():
            netns.sh(
                f"ip link add {name} type veth peer name eth0 netns {space}; ip link set {name} master br0 up"
            )
            prefix = "64 nodad" if ipv6 else "24"
            netns.sh(f"ip link set eth0 up; ip addr add {self.addresses[name]}/{prefix} dev eth0", space)
        for name in NAMES:
            self.start(name)
        self.until(lambda: all(self.sees(name) == set(NAMES) for name in NAMES), 60)
        self.until(lambda: all(agent.acts for agent in self.agents.values()), 5 + BUSY)

    def start(self, name: str) -> None:
        places = [f"{one}={address}" for one, address in self.addresses.items()]
        words = [
            sys.executable,
            "-m",
            "benchmarks.gossip_agent",
            "--port",
            "10351",
            "--key",
            self.key,
            "--here",
            name,
        ]
        self.agents[name] = Agent(["ip", "netns", "exec", self.spaces[name], *words, *places])

    def sees(self, name: str) -> set[str]:
        return self.agents[name].living | {name}

    def cut(self, name: str, *, heal: bool = False) -> None:
        """Its link, at the bridge: the agent is not told."""
        self.netns.sh(f"bridge link set dev {name} state {3 if heal else 0}")

    def until(self, condition: Callable[[], bool], seconds: float) -> float:
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds, {name: self.sees(name) for name in self.agents}
            time.sleep(0.01)
        return time.monotonic() - began

    def died(self, since: float) -> set[tuple[str, str]]:
        """Who took whom for dead."""
        return {
            (name, line["node"])
            for name, agent in self.agents.items()
            for line in list(agent.said)
            if "node" in line and not line["alive"] and line["at"] >= since
        }

    def end(self) -> None:
        for agent in self.agents.values():
            agent.end()


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.wide)], ids=["ipv4", "ipv6"])
def cluster(netns: Namespaces, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(netns, ipv6=request.param)
    try:
        yield made
    finally:
        made.end()


def test_gossip_between_namespaces_finds_who_is_killed_cut_off_and_paused_and_takes_them_back(
    cluster: Cluster,
) -> None:
    gone, others = "node-2", [name for name in NAMES if name != "node-2"]

    def only_others() -> bool:
        return all(cluster.sees(name) == set(others) for name in others)

    def everybody() -> bool:
        return all(cluster.sees(name) == set(NAMES) for name in NAMES)

    # killed
    began = now()
    cluster.agents[gone].end()
    cluster.until(only_others, FOUND + BUSY)
    assert cluster.died(began) == {(name, gone) for name in others}
    cluster.start(gone)
    cluster.until(everybody, TOGETHER + BUSY)
    cluster.until(lambda: cluster.agents[gone].acts, 4 + BUSY)

    # cut off: it gives up before anybody acts for it
    began = now()
    cluster.cut(gone)
    cluster.until(lambda: only_others() and not cluster.agents[gone].acts, FOUND + BUSY)
    gave_up = next(line["at"] for line in cluster.agents[gone].said if "has" in line and line["at"] > began)
    found = min(
        line["at"]
        for name in others
        for line in cluster.agents[name].said
        if line.get("node") == gone and line["at"] > began
    )
    assert gave_up < found
    assert all(cluster.agents[name].acts for name in others)
    cluster.cut(gone, heal=True)
    cluster.until(everybody, TOGETHER + BUSY)
    cluster.until(lambda: cluster.agents[gone].acts, 4 + BUSY)

    # paused: it blames nobody, and acts no longer
    paused = cluster.agents[gone].process.pid
    os.kill(paused, signal.SIGSTOP)
    cluster.until(only_others, FOUND + BUSY)
    time.sleep(1)
    began = now()
    os.kill(paused, signal.SIGCONT)
    cluster.until(lambda: not cluster.agents[gone].acts, 0.5 + BUSY)
    cluster.until(everybody, TOGETHER + BUSY)
    assert cluster.died(began) == set()


@pytest.mark.wide
def test_gossip_between_namespaces_loses_nobody_while_every_twentieth_packet_is_lost(
    netns: Namespaces,
) -> None:
    cluster = Cluster(netns, ipv6=False)
    try:
        for space in cluster.spaces.values():
            rule = "add rule inet t in iifname eth0 numgen random mod 100 < 5 counter drop"
            netns.sh(
                f"nft 'add table inet t; add chain inet t in {{ type filter hook input priority 0; }}; {rule}'",
                space,
            )
        began = now()
        # as many as 12 s of gossip lose
        cluster.until(lambda: all(lost(cluster, name) >= 16 for name in NAMES), 60)
        assert cluster.died(began) == set()
        assert all(agent.acts for agent in cluster.agents.values())
        cluster.agents["node-5"].end()
        cluster.until(
            lambda: all(cluster.sees(name) == set(NAMES[:4]) for name in NAMES[:4]), FOUND_BY_FEW + BUSY
        )
    finally:
        cluster.end()


def lost(cluster: Cluster, name: str) -> int:
    """How many packets to a member the rule has dropped."""
    rules = json.loads(cluster.netns.sh("nft -j list chain inet t in", cluster.spaces[name]))["nftables"]
    return sum(
        part["counter"]["packets"]
        for row in rules
        for part in row.get("rule", {}).get("expr", ())
        if "counter" in part
    )
