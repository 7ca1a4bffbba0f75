"""Policies on a Node with proxyAll: a load balancer's address that leads to a process of the Node meets them, one that leads to a Pod does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from node_host import EVERYBODY, peer, policy, rule
from policy_node import NODES, OUTSIDE, WEB
from proxy_node import (
    BALANCED,
    EXTERNAL,
    GATEWAYS,
    PROXY_ALL,
    SERVER,
    SERVICE,
    SHORT,
    VIRTUAL,
    Node,
    endpoints,
)

from antrea.apis import controlplane as cp
from antrea.facts.api_server import ApiServerEndpoint
from antrea.features.network_policy.agent.received import SentAppliedMember

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


async def test_what_reaches_a_pod_by_the_load_balancer_is_not_for_the_node(node: Node) -> None:
    for row in endpoints(WEB):
        node.facts.put(row)
    rules = (
        rule("In", peer(*EVERYBODY), "Drop", services=LISTENS + SERVES),
        rule("Out", hosts(BALANCED), "Drop", services=SERVES),
    )
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("node", BALANCED) == GATEWAYS * 2
            node.facts.put(policy("p", *rules))
            await engine.quiet()
            assert await node.asks("outside", BALANCED) == OUTSIDE * 2
            # what a process of the Node sends is judged by the address of the Service
            assert await node.asks("node", BALANCED, seconds=SHORT) == ("timeout",) * 2 + ("EPERM",) * 2
            assert await node.asks("node", EXTERNAL) == GATEWAYS * 2
        assert not engine.errors.counts
