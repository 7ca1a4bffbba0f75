"""While policies, groups and agents come and go, what is allowed throughout arrives, and what is forbidden throughout never does."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from policy_node import WEB, PolicyNode

from antrea.apis import controlplane as cp
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember
from tests.unit.features.policy_world import ANY, block, member, native, peer, policy, port, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

    from antrea.facts.fact import Fact

NEVER, ALWAYS, AT_TIMES = 9001, 9002, 9003
HEAR = """
import selectors, socket
hear = selectors.DefaultSelector()
for port in (9001, 9002, 9003):
    for family in (socket.AF_INET, socket.AF_INET6):
        udp = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        udp.bind(("", port))
        hear.register(udp, selectors.EVENT_READ, f"{port} {4 if family == socket.AF_INET else 6}")
print("listening", flush=True)
while True:
    for key, _ in hear.select():
        key.fileobj.recv(99)
        print(key.data, flush=True)
"""
SEND = """
import socket, sys, time
ends = [(socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM), (ip, port))
        for ip in sys.argv[1:] for port in (9001, 9002, 9003)]
while True:
    for udp, end in ends:
        udp.sendto(b"x", end)
    time.sleep(0.005)
"""
"""Nobody answers, so that each packet is a first one and is judged."""


@contextlib.contextmanager
def traffic(node: PolicyNode) -> Iterator[Counter[str]]:
    """From `near` to `web`; how many have arrived by now, by port and family."""
    heard: Counter[str] = Counter()

    def program(space: str, text: str, *words: str) -> subprocess.Popen[str]:
        inside = ["ip", "netns", "exec", node.pods[space], sys.executable, "-IS", "-c", text, *words]
        return subprocess.Popen(inside, stdout=subprocess.PIPE, text=True)

    def read(server: subprocess.Popen[str]) -> None:
        assert server.stdout is not None
        for line in server.stdout:
            heard[line.strip()] += 1

    with contextlib.ExitStack() as last:
        server = last.enter_context(program("web", HEAR))
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        reader = threading.Thread(target=read, args=(server,))
        reader.start()
        client = last.enter_context(program("near", SEND, *WEB))
        for end in (reader.join, server.kill, client.kill):
            last.callback(end)
        yield heard


@pytest.fixture
def node(netns: Namespaces) -> Iterator[PolicyNode]:
    with PolicyNode(netns).standing() as found:
        yield found


def states() -> list[list[Fact]]:
    """Each forbids NEVER and allows ALWAYS to `near`, by other policies, groups and tables."""
    web = cp.GroupMember(pod=cp.PodReference(name="web", namespace="shop"))
    near = SentAddressMember("peers", member("near", "10.10.0.8", "fd00:10::8"))
    far = SentAddressMember("peers", member("far", "10.10.1.9"))
    some = peer(blocks=(block("10.10.0.0/24"), block("fd00:10::/64")))
    udp = {number: port(number, protocol="UDP") for number in (NEVER, ALWAYS, AT_TIMES)}
    isolate = policy("k", "g", rule("In", peer("peers"), udp[ALWAYS]))
    wide = policy("k", "g", rule("In", some, udp[ALWAYS], udp[AT_TIMES]))
    drop = native("a", "g", rule("In", ANY, udp[NEVER], action="Drop"))
    both = native("a", "g", rule("In", peer("peers"), udp[NEVER], udp[AT_TIMES], action="Drop"), tier=50)
    strict = (
        native("b", "g", rule("In", peer("peers"), udp[ALWAYS], action="Allow"), tier=100),
        native("c", "g", rule("In", ANY, action="Drop"), tier=253),
    )
    held = SentAppliedMember("g", web)
    return [
        [held, near, isolate],
        [held, near, far, wide],
        [held, drop],
        [held, near, both, wide],
        [held, near, far, *strict],
        [held, far, wide],
    ]


async def arrives(heard: Counter[str], within: float = 60) -> None:
    """More of what is always allowed, in both families."""
    wanted = {key: heard[key] + 5 for key in (f"{ALWAYS} 4", f"{ALWAYS} 6")}
    deadline = time.monotonic() + within
    while any(heard[key] < count for key, count in wanted.items()):
        assert time.monotonic() < deadline, heard
        await asyncio.sleep(0.02)


async def test_packets_of_both_kinds_meet_no_instant_between_two_states(node: PolicyNode) -> None:
    every = states()
    rows: dict[tuple[type[Fact], str], Fact] = {}

    def become(state: list[Fact]) -> None:
        wanted = {(type(row), row.key): row for row in state}
        for kind, key in rows.keys() - wanted.keys():
            node.facts.drop(kind, key)
        for ref, row in wanted.items():
            if rows.get(ref) != row:
                node.facts.put(row)
        rows.clear()
        rows.update(wanted)

    become(every[0])
    async with node.agent() as engine:
        with traffic(node) as heard:
            await arrives(heard)
            for turn in range(18):
                become(every[turn * 5 % len(every)])
                await engine.quiet()
                await arrives(heard)
            assert heard[f"{AT_TIMES} 4"]
            assert heard[f"{AT_TIMES} 6"]
            assert {key: heard[key] for key in (f"{NEVER} 4", f"{NEVER} 6")} == {
                f"{NEVER} 4": 0,
                f"{NEVER} 6": 0,
            }
            assert not engine.errors.counts
