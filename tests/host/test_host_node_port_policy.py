"""Policies for NodePorts with packets: who is denied, wherever the Endpoint is, and that nothing else of the Service is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import NODES, OUTSIDE, WEB
from proxy_node import (
    CLUSTER,
    EXTERNAL,
    GATEWAYS,
    NEAR,
    PROXY_ALL,
    SERVER,
    SERVICE,
    Node,
    endpoints,
)

from antrea.apis import controlplane as cp
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from tests.unit.features.policy_world import block, native, peer, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

    from antrea.facts.service import ServiceEndpoint

GATES = ("AntreaProxy", "AntreaPolicy")
MEMBER = SentAppliedMember("svc", cp.GroupMember(service=cp.ServiceReference(name="web", namespace="shop")))
CLIENT = peer(blocks=(block(f"{OUTSIDE[0]}/32"), block(f"{OUTSIDE[1]}/128")))
OTHER = msgspec.structs.replace(
    SERVICE,
    name="api",
    ips=("10.96.0.11", "fd00:96::b"),
    external_ips=(),
    load_balancer_ips=(),
    node_ports=(30081, 30081),
)
DROPPED = ("timeout",) * 4
REJECTED = ("ECONNREFUSED", "ECONNREFUSED", "EHOSTUNREACH", "EACCES")
AGAIN = 2.5
"""Seconds: the kernel sends the first packet of a TCP connection again after one."""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


def denying(action: str = "Drop") -> SentPolicy:
    return native("deny", "svc", rule("In", CLIENT, action=action))


def of_other(rows: list[ServiceEndpoint]) -> list[ServiceEndpoint]:
    return [msgspec.structs.replace(row, slice=f"shop/api-{row.ip}", service=OTHER.key) for row in rows]


async def test_a_client_outside_is_denied_the_node_port_and_nothing_else(node: Node) -> None:
    for row in (SERVICE, OTHER, *endpoints(WEB), *of_other(endpoints(WEB)), denying(), MEMBER):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("outside", NODES, 30080, seconds=AGAIN) == DROPPED
            assert await node.asks("outside", NODES, 30081) == OUTSIDE * 2
            assert await node.asks("outside", EXTERNAL) == OUTSIDE * 2
            assert await node.asks("near", NODES, 30080) == NEAR * 2
            assert await node.asks("near", CLUSTER) == NEAR * 2
            node.facts.put(denying("Reject"))
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == REJECTED
            node.facts.drop(SentPolicy, "deny")
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == OUTSIDE * 2
        assert not engine.errors.counts


async def test_a_client_outside_is_denied_where_the_endpoint_is_a_host(node: Node) -> None:
    """The switch sends such packets back to the Node, with a source of its own."""
    for row in (SERVICE, *endpoints(OUTSIDE, "n2"), denying(), MEMBER):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.outside, SERVER):
            assert await node.asks("outside", NODES, 30080, seconds=AGAIN) == DROPPED
            assert await node.asks("outside", EXTERNAL) == NODES * 2
            assert await node.asks("near", NODES, 30080) == NODES * 2
            node.facts.put(denying("Reject"))
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == REJECTED
            node.facts.drop(SentPolicy, "deny")
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == NODES * 2
        assert not engine.errors.counts


async def test_a_client_outside_is_denied_where_the_endpoint_is_on_another_node(node: Node) -> None:
    """Which sees the address of this Node's gateway; the rule judges by the client's."""
    peer = node.plug_peer()
    remote = ("10.10.1.12", "fd00:10:1::c")
    node.netns.sh("ip link set eth0 address aa:bb:cc:dd:ee:ff", peer)
    node.netns.sh(
        f"ip addr add {remote[0]}/24 dev eth0; ip addr add {remote[1]}/64 dev eth0 nodad;"
        "ip route add 10.10.0.0/24 dev eth0; ip route add fd00:10::/64 dev eth0;"
        "ip neigh add 10.10.0.1 lladdr 0e:00:00:00:00:01 dev eth0 nud permanent;"
        "ip neigh add fd00:10::1 lladdr 0e:00:00:00:00:01 dev eth0 nud permanent",
        peer,
    )
    for row in (SERVICE, *endpoints(remote, "n2"), denying(), MEMBER):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(peer, SERVER):
            assert await node.asks("outside", NODES, 30080, seconds=AGAIN) == DROPPED
            assert await node.asks("outside", EXTERNAL) == GATEWAYS * 2
            node.facts.put(denying("Reject"))
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == REJECTED
            node.facts.drop(SentPolicy, "deny")
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == GATEWAYS * 2
        assert not engine.errors.counts
