"""A Pod that gets the address of an ended one gets none of its connections, which no policy for the new Pod has judged."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from policy_node import SERVER, WEB, PolicyNode

from antrea.apis import controlplane as cp
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.received import SentAppliedMember
from antrea.features.network_policy.agent_part.ended_pod import EndedPodConnections
from antrea.host.pod_tracking import TrackedPodAddress
from antrea.outside.vswitch.conntrack import Conntrack
from tests.unit.features.policy_world import block, peer, policy, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

NOBODY = peer(blocks=(block("192.0.2.0/24"), block("2001:db8:2::/64")))
CLIENT = """
import socket, sys
address, seconds = sys.argv[1], float(sys.argv[2])
with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(seconds)
    client.bind(("", 40001))
    client.connect((address, 8099))
    try:
        client.send(b"hello")
        print(client.recv(99).decode())
    except OSError as no:
        print("unanswered")
"""
"""One connection, however often it runs: from the same port."""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[PolicyNode]:
    with PolicyNode(netns).standing() as found:
        yield found


async def says(node: PolicyNode, ip: str, seconds: float) -> str:
    words = ["ip", "netns", "exec", node.pods["near"], sys.executable, "-IS", "-c", CLIENT, ip, str(seconds)]
    await asyncio.to_thread(node.switch.revalidate)
    run = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    out, _ = await run.communicate()
    return out.decode().strip()


async def test_a_client_of_an_ended_pod_does_not_reach_the_one_with_its_address(node: PolicyNode) -> None:
    """Over UDP, which has no end: a packet of what is established passes whatever policies say."""
    member = cp.GroupMember(pod=cp.PodReference(name="fresh", namespace="shop"))
    node.facts.put(SentAppliedMember("fresh", member))
    node.facts.put(policy("p", "fresh", rule("In", NOBODY)))
    ended = EndedPodConnections(Conntrack(Path(node.switch.directory)), pause=0.1)
    async with node.agent(sinks={TrackedPodAddress: ended}) as engine, asyncio.TaskGroup() as tasks:
        forgetting = tasks.create_task(ended.run(engine))
        with node.serving(node.pods["web"], SERVER):
            for ip in WEB:
                assert await says(node, ip, 30) == "hello"
            assert await node_knows(node) == 2
        node.facts.drop(PodInterface, "web")
        await asyncio.to_thread(node.switch.vsctl, "del-port", "br-int", "web")
        node.netns.sh("ip link del web")
        await asyncio.to_thread(node.connect, "fresh", 7)
        mac = node.mac_of("eth0", node.pods["fresh"])
        node.netns.sh(
            f"ip neigh replace {WEB[0]} lladdr {mac} dev eth0; ip neigh replace {WEB[1]} lladdr {mac} dev eth0",
            node.pods["near"],
        )
        await engine.quiet()
        with node.serving(node.pods["fresh"], SERVER):
            deadline = time.monotonic() + 10  # by itself the switch forgets after 30 s
            while await node_knows(node):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            for ip in WEB:
                assert await says(node, ip, 1) == "unanswered"
        assert not engine.errors.counts
        forgetting.cancel()


async def node_knows(node: PolicyNode) -> int:
    """How many of the client's connections are tracked."""
    tracking = Conntrack(Path(node.switch.directory))
    found = [one for zone in (65520, 65510) for one in await tracking.connections(zone)]
    return sum(one.source_port == 40001 and one.protocol == "udp" for one in found)
