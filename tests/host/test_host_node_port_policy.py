"""Policies for NodePorts with packets: who is denied, wherever the Endpoint is, and that nothing else of the Service is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    SHORT,
    Node,
    endpoints,
)

from antrea.agent.switch.traffic_statistics import TrafficStatistics
from antrea.apis import controlplane as cp
from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.network_policy.agent.statistics import COUNTED
from antrea.outside.vswitch.ofctl import Ofctl
from tests.unit.features.policy_world import ANY, block, native, peer, rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Namespaces

    from antrea.apis.stats import TrafficStats
    from antrea.facts.service import ServiceEndpoint
    from antrea.openflow.flow_count import FlowCount

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
CLOSED = native("closed", "svc", rule("In", ANY, action="Drop"), priority=6)
AGAIN = 2.5
"""Seconds: the kernel sends the first packet of a TCP connection again after one."""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


def denying(action: str = "Drop", **more: Any) -> SentPolicy:
    deny = msgspec.structs.replace(rule("In", CLIENT, action=action), **more)
    return native("deny", "svc", deny)


async def reported(node: Node, keep: Path) -> dict[str, TrafficStats]:
    """What the agent tells the controller of each policy: all since it was asked before."""
    sums: dict[str, TrafficStats] = {}

    class Controller:
        async def ask(self, path: str, body: Any, kind: type[NodeStatsSummary]) -> NodeStatsSummary:
            for row in msgspec.convert(body, kind).antrea_cluster_network_policies:
                sums[row.network_policy.name] = sum(
                    (one.traffic_stats for one in row.rule_traffic_stats), row.traffic_stats
                )
            return NodeStatsSummary()

    async def others() -> tuple[FlowCount, ...]:
        return ()

    pipeline = node.facts.get(RealizedPipeline)
    assert pipeline is not None
    node.switch.appctl("revalidator/purge")
    agent = TrafficStatistics(
        node.facts, Ofctl(node.switch.directory / "br-int.mgmt"), Controller,  # type: ignore[arg-type]
        (COUNTED,), node="n1", tables=pipeline.pipeline.ids, counters=others, keep=keep,
    )  # fmt: skip
    agent.read()
    await agent.turn()
    return sums


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
            node.facts.put(CLOSED)
            node.facts.put(denying("Allow"))
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == OUTSIDE * 2
            assert await node.asks("near", NODES, 30080, seconds=SHORT) == DROPPED
            node.facts.drop(SentPolicy, "deny")
            node.facts.drop(SentPolicy, "closed")
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == OUTSIDE * 2
        assert not engine.errors.counts


async def test_what_is_denied_and_allowed_is_counted_and_logged_by_the_address_of_the_client(
    node: Node, tmp_path: Path
) -> None:
    """Also where the packet has another source by the time that it is judged."""
    keep = tmp_path / "counters"
    denied = denying(enable_logging=True, name="no-office")
    for row in (SERVICE, *endpoints(OUTSIDE, "n2"), denied, MEMBER):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.outside, SERVER):
            await reported(node, keep)
            for ip in NODES:
                await node.ask("outside", ip, "SOCK_DGRAM", 30080, SHORT)
            assert (await reported(node, keep))["deny"].sessions == 2
            allowed = denying("Allow", enable_logging=True, name="office")
            for row in (allowed, CLOSED):
                node.facts.put(row)
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == NODES * 2
            assert await node.asks("near", NODES, 30080, seconds=SHORT) == DROPPED
            counted = await reported(node, keep)
            assert counted["deny"].sessions == 4
            assert counted["closed"].sessions >= 4
    lines = [line.split() for line in node.log.read_text().splitlines()]
    assert {(*tuple(line[2:7]), line[8], line[9], line[11]) for line in lines} == {
        ("AntreaPolicyIngressRule", "AntreaClusterNetworkPolicy:deny", *words, "<nil>", source, server)
        for source, server in zip(OUTSIDE, OUTSIDE, strict=True)
        for words in (("no-office", "Ingress", "Drop"), ("office", "Ingress", "Allow"))
    }


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
            node.facts.put(CLOSED)
            node.facts.put(denying("Allow"))
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == NODES * 2
            assert await node.asks("near", NODES, 30080, seconds=SHORT) == DROPPED
            node.facts.drop(SentPolicy, "deny")
            node.facts.drop(SentPolicy, "closed")
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
            node.facts.put(CLOSED)
            node.facts.put(denying("Allow"))
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == GATEWAYS * 2
            assert await node.asks("near", NODES, 30080, seconds=SHORT) == DROPPED
            node.facts.drop(SentPolicy, "deny")
            node.facts.drop(SentPolicy, "closed")
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == GATEWAYS * 2
        assert not engine.errors.counts


async def test_with_policy_local_all_who_ask_for_the_node_port_are_judged(node: Node) -> None:
    """Another group chooses the Endpoint then; on the userspace datapath also processes of the Node itself are judged."""
    local = msgspec.structs.replace(SERVICE, external_local=True)
    for row in (local, *endpoints(WEB), CLOSED, MEMBER):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, *GATES) as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("outside", NODES, 30080, seconds=SHORT) == DROPPED
            assert await node.asks("near", NODES, 30080, seconds=SHORT) == DROPPED
            # on this datapath the mark of what the Node itself sends is a source MAC, which is another by then
            assert await node.asks("node", NODES, 30080, seconds=SHORT) == DROPPED
            assert await node.asks("node", CLUSTER) == GATEWAYS * 2
            assert await node.asks("near", CLUSTER) == NEAR * 2
            node.facts.put(denying("Allow"))
            await engine.quiet()
            assert await node.asks("outside", NODES, 30080) == OUTSIDE * 2
        assert not engine.errors.counts
