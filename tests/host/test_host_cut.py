"""Connections that stand go on when a policy comes to forbid them, and are cut where that carries `antrea.io/on-deny: flush`."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import WEB, PolicyNode

from antrea.apis import controlplane as cp
from antrea.apis.annotation import FLUSH, ON_DENY
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from tests.unit.features.policy_world import block, native, peer, policy, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

SERVER = """
import socket, threading, time
def serve(stream):
    try:
        while True:
            stream.sendall(b"x")
            time.sleep(0.1)
    except OSError:
        pass
tcp = socket.create_server(("::", 8099), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(tcp.accept()[0],), daemon=True).start()
"""
CLIENT = """
import socket, sys, threading, time
def talk(stream):
    while True:
        stream.sendall(b"y")
        time.sleep(0.1)
def hear(stream, name):
    while stream.recv(4096):
        print(name, flush=True)
for address in sys.argv[1:]:
    for manner in ("talks", "listens"):
        stream = socket.create_connection((address, 8099), timeout=60)
        stream.settimeout(None)
        threading.Thread(target=hear, args=(stream, f"{address} {manner}")).start()
        if manner == "talks":
            threading.Thread(target=talk, args=(stream,), daemon=True).start()
"""
"""One that listens leaves the next packet after the cut to the server."""
Heard = Counter[tuple[str, str]]


@contextlib.contextmanager
def connections(node: PolicyNode) -> Iterator[Heard]:
    """Of each family, from `near` and from outside; how often something has come over each by now."""
    heard: Heard = Counter()

    def read(who: str, client: subprocess.Popen[str]) -> None:
        assert client.stdout is not None
        with client.stdout:
            for line in client.stdout:
                heard[who, line.strip()] += 1

    with contextlib.ExitStack() as last:
        for who in ("near", "outside"):
            words = ["ip", "netns", "exec", node.pods[who], sys.executable, "-IS", "-c", CLIENT, *WEB]
            client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            reader = threading.Thread(target=read, args=(who, client))
            reader.start()
            for end in (reader.join, client.wait, client.kill):
                last.callback(end)
        yield heard


async def speak(heard: Heard, who: str, times: int = 10) -> None:
    """All four connections of this end go on."""
    before, deadline = heard.copy(), time.monotonic() + 60
    keys = [(who, f"{ip} {manner}") for ip in WEB for manner in ("talks", "listens")]
    while any(heard[key] < before[key] + times for key in keys):
        assert time.monotonic() < deadline, (before, heard)
        await asyncio.sleep(0.05)


def near(heard: Heard) -> Heard:
    return Counter({key: count for key, count in heard.items() if key[0] == "near"})


def stated(one: SentPolicy, *, flush_on_deny: bool) -> SentPolicy:
    meta = msgspec.structs.replace(one.policy.metadata, annotations={ON_DENY: FLUSH} if flush_on_deny else {})
    return SentPolicy(msgspec.structs.replace(one.policy, metadata=meta))


NEAR = peer(blocks=(block("10.10.0.8/32"), block("fd00:10::8/128")))
OTHERS = peer(blocks=(block("192.0.2.0/24"), block("2001:db8:2::/64")))
DROP = native("p", "web", rule("In", NEAR, action="Drop"))
ISOLATE = policy("p", "web", rule("In", OTHERS))


@pytest.fixture
def node(netns: Namespaces) -> Iterator[PolicyNode]:
    with PolicyNode(netns).standing() as found:
        yield found


@pytest.mark.parametrize("deny", [DROP, ISOLATE], ids=["drop", "isolation"])
async def test_what_stands_is_cut_where_the_policy_says_so_and_only_what_it_forbids(
    node: PolicyNode, deny: SentPolicy
) -> None:
    member = cp.GroupMember(pod=cp.PodReference(name="web", namespace="shop"))
    node.facts.put(SentAppliedMember("web", member))
    async with node.agent() as engine:
        with node.serving(node.pods["web"], SERVER), connections(node) as heard:
            for who in ("near", "outside"):
                await speak(heard, who)
            node.facts.put(stated(deny, flush_on_deny=False))
            await engine.quiet()
            for who in ("near", "outside"):
                await speak(heard, who)

            node.facts.put(stated(deny, flush_on_deny=True))
            await engine.quiet()
            before, now = None, near(heard)
            async with asyncio.timeout(60):
                while before != now:  # what was on its way is read
                    await speak(heard, "outside", 5)
                    before, now = now, near(heard)
            for _ in range(3):
                await asyncio.sleep(1)  # in which TCP tries again, from both ends
                await speak(heard, "outside", 5)
            assert near(heard) == before
            assert not engine.errors.counts
