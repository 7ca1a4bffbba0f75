"""Policies on a Node with proxyAll: at a load balancer's address whatever that leads to, and at a process of the Node behind it once more."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from node_host import EVERYBODY, peer, policy, rule
from policy_node import NODES, OUTSIDE, WEB
from proxy_node import (
    BALANCED,
    EXTERNAL,
    GATEWAYS,
    NEAR,
    PROXY_ALL,
    SERVER,
    SERVICE,
    SHORT,
    VIRTUAL,
    Node,
    endpoints,
)

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT
from antrea.facts.api_server import ApiServerEndpoint
from antrea.features.network_policy.agent.received import SentAppliedMember
from antrea.outside.nftables.table_reader import NftCounters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

GATES = ("AntreaProxy", "AntreaPolicy", "NodeNetworkPolicy")
LISTENS, SERVES = (
    tuple(cp.Service(protocol=protocol, port=port) for protocol in ("TCP", "UDP")) for port in (8080, 80)
)
"""Ports of the process, and those of the Service."""
DROPPED = ("timeout",) * 4


def hosts(ips: tuple[str, str]) -> cp.NetworkPolicyPeer:
    return peer(f"{ips[0]}/32", f"{ips[1]}/128")


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        member = cp.GroupMember(node=cp.NodeReference(name="n1"))
        for row in (ApiServerEndpoint("192.0.2.100", 6443), SentAppliedMember("nodes", member), SERVICE):
            found.facts.put(row)
        yield found


async def test_what_reaches_a_process_of_the_node_by_the_load_balancer_meets_policies_on_the_node(
    node: Node,
) -> None:
    """They judge what the process receives: its own port, and the address that the switch gives to whoever asks."""
    for row in endpoints(NODES):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, *GATES) as engine:

        async def enforce(*rules: Any) -> None:
            node.facts.put(policy("p", *rules))
            await engine.quiet()

        last = rule("In", peer(*EVERYBODY), "Drop", services=LISTENS, priority=1)
        with node.serving(node.netns.home, SERVER):
            for to in (BALANCED, EXTERNAL):
                assert await node.asks("outside", to) == VIRTUAL * 2
            await enforce(last)
            for to in (BALANCED, EXTERNAL):
                assert await node.asks("outside", to, seconds=SHORT) == DROPPED
            await enforce(rule("In", hosts(OUTSIDE), "Allow", services=LISTENS), last)
            assert await node.asks("outside", NODES, 8080) == OUTSIDE * 2
            assert await node.asks("outside", BALANCED, seconds=SHORT) == DROPPED
            await enforce(rule("In", hosts(VIRTUAL), "Allow", services=LISTENS), last)
            assert await node.asks("outside", BALANCED) == VIRTUAL * 2
            assert await node.asks("outside", NODES, 8080, seconds=SHORT) == DROPPED
        assert not engine.errors.counts


async def test_what_comes_to_a_service_of_pods_meets_policies_on_the_node_at_its_address(node: Node) -> None:
    """With the address of the client and the port of the Service; what Pods and the Node itself send does not."""
    for row in endpoints(WEB):
        node.facts.put(row)
    last = rule("In", peer(*EVERYBODY), "Drop", services=SERVES, priority=1)
    async with node.agent(PROXY_ALL, *GATES) as engine:

        async def enforce(*rules: Any) -> None:
            node.facts.put(policy("p", *rules))
            await engine.quiet()

        with node.serving(node.pods["web"], SERVER):
            for to in (BALANCED, EXTERNAL):
                assert await node.asks("outside", to) == OUTSIDE * 2
            await enforce(last)
            for to in (BALANCED, EXTERNAL):
                assert await node.asks("outside", to, seconds=SHORT) == DROPPED
            assert await node.asks("node", BALANCED) == GATEWAYS * 2
            assert await node.asks("near", BALANCED) == NEAR * 2
            await enforce(rule("In", hosts(OUTSIDE), "Allow", services=SERVES), last)
            for to in (BALANCED, EXTERNAL):
                assert await node.asks("outside", to) == OUTSIDE * 2
            await enforce(rule("In", peer(*EVERYBODY), "Drop", services=LISTENS))
            assert await node.asks("outside", BALANCED) == OUTSIDE * 2, "the port is that of the Service"
            await enforce(rule("In", hosts(OUTSIDE), "Reject", services=SERVES))
            refused = ("ECONNREFUSED",) * 2 + ("EHOSTUNREACH", "EACCES")
            assert await node.asks("outside", BALANCED) == refused
        assert not engine.errors.counts


async def test_what_the_node_sends_to_the_load_balancer_is_judged_by_its_egress_rules(node: Node) -> None:
    for row in endpoints(WEB):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("node", BALANCED) == GATEWAYS * 2
            node.facts.put(policy("p", rule("Out", hosts(BALANCED), "Drop", services=SERVES)))
            await engine.quiet()
            assert await node.asks("outside", BALANCED) == OUTSIDE * 2
            assert await node.asks("node", BALANCED, seconds=SHORT) == ("timeout",) * 2 + ("EPERM",) * 2
            assert await node.asks("node", EXTERNAL) == GATEWAYS * 2
        assert not engine.errors.counts


STREAM = """
import socket, sys
client = socket.create_connection((sys.argv[1], 80), timeout=20)
print("connected", flush=True)
for line in sys.stdin:
    try:
        client.sendall(b"x")
        print(client.recv(9).decode(), flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""
ECHO = """
import socket, threading
def serve(client):
    while data := client.recv(99):
        client.sendall(data)
listening = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()
"""


@pytest.mark.parametrize("ip", BALANCED, ids=["ipv4", "ipv6"])
async def test_connections_of_before_a_policy_go_on_at_the_load_balancer(node: Node, ip: str) -> None:
    for row in endpoints(WEB):
        node.facts.put(row)
    words = ["ip", "netns", "exec", node.pods["outside"], sys.executable, "-c", STREAM, ip]
    pipe = asyncio.subprocess.PIPE
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.pods["web"], ECHO):
            await asyncio.to_thread(node.switch.revalidate)
            client = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
            assert client.stdin is not None
            assert client.stdout is not None
            assert await client.stdout.readline() == b"connected\n"
            node.facts.put(policy("p", rule("In", peer(*EVERYBODY), "Drop", services=SERVES)))
            await engine.quiet()
            assert await node.ask("outside", ip, "SOCK_STREAM", 80, SHORT) == "timeout"
            client.stdin.write(b"\n")
            await client.stdin.drain()
            assert await client.stdout.readline() == b"x\n"
            client.stdin.close()
            await client.wait()


async def test_audited_rules_count_what_comes_to_the_load_balancer_and_drop_nothing(node: Node) -> None:
    for row in endpoints(WEB):
        node.facts.put(row)
    deny = rule("In", peer(*EVERYBODY), "Drop", services=SERVES)
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.pods["web"], SERVER):
            node.facts.put(policy("p", deny, enforcement=AUDIT))
            await engine.quiet()
            assert await node.asks("outside", BALANCED) == OUTSIDE * 2
            counters = {one.flow: one for one in await NftCounters().read()}
            assert counters["np-p-0"].packets >= 4
