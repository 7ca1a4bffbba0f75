"""A connection from outside to a Pod of another Node is exported by the Node that was asked, with the source that the Pod sees: real packets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from agent_context import agent_context
from policy_node import NODES, OUTSIDE
from proxy_node import EXTERNAL, GATEWAYS, LONG, PROXY_ALL, SERVER, SERVICE, Node, endpoints

from antrea.agent.flow_export.part import FlowExportPart
from antrea.agent.network_policy.part import PolicyPart
from antrea.apis.flow import FlowRecord, FlowType
from antrea.config.agent_sections import FlowExporter
from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

REMOTE = ("10.10.1.12", "fd00:10:1::c")
KINDS = {"SOCK_STREAM": 6, "SOCK_DGRAM": 17}
ADDRESS = 'peer[0].removeprefix("::ffff:")'
BOTH_ENDS = SERVER.replace(ADDRESS, f'f"{{{ADDRESS}}} {{peer[1]}}"'.replace('("::ffff:")', "('::ffff:')"))
"""Answers with the port of whom it sees, too."""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


def plug_pod_of_peer(node: Node) -> str:
    """At the other end of a cable in the tunnel's place, with the way back to this Node's gateways."""
    peer = node.plug_peer()
    node.netns.sh(f"ip addr add {REMOTE[0]}/32 dev lo; ip addr add {REMOTE[1]}/128 dev lo nodad", peer)
    for gateway, own in zip(GATEWAYS, REMOTE, strict=True):
        node.netns.sh(f"ip route add {gateway} dev eth0 src {own}", peer)
        node.netns.sh(
            f"ip neigh replace {gateway} lladdr {node.mac_of('antrea-gw0')} dev eth0 nud permanent", peer
        )
    return peer


async def test_the_node_that_was_asked_exports_the_client_and_the_source_that_the_pod_sees(
    node: Node,
) -> None:
    peer = plug_pod_of_peer(node)
    got: list[FlowRecord] = []
    ports: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", ports.put_nowait))
    exporter = FlowExporter(
        enable=True, flow_collector_addr=f"127.0.0.1:{await ports.get()}:tcp",
        flow_poll_interval="1s", active_flow_export_timeout="1s",
    )  # fmt: skip
    config = msgspec.structs.replace(
        PROXY_ALL,
        flow_exporter=exporter,
        feature_gates={"FlowExporter": True},
        ovs_run_dir=str(node.switch.directory),
    )
    for row in (SERVICE, *endpoints(REMOTE, "n2")):
        node.facts.put(row)
    context = agent_context(node.facts, config)
    context.parts.append(PolicyPart(context))
    part = FlowExportPart(context)
    async with node.agent(config, "AntreaProxy", "FlowExporter") as engine:
        exporting = asyncio.create_task(part.run())
        with node.serving(peer, BOTH_ENDS):
            for places, port, service_ips in ((NODES, 30080, ("", "")), (EXTERNAL, 80, EXTERNAL)):
                for family, ip in enumerate(places):
                    for kind, protocol in KINDS.items():
                        answer = await node.ask("outside", ip, kind, port, LONG)
                        gateway, _, seen = answer.partition(" ")
                        assert gateway == GATEWAYS[family], (ip, kind)
                        name = f"shop/web:{'tcp' if protocol == 6 else 'udp'}"
                        expected = (OUTSIDE[family], REMOTE[family], 8080, name, port, service_ips[family])
                        found = await until_of(got, protocol, gateway, int(seen))
                        assert said(found[0]) == expected
                        assert not found[0].destination_pod_name
        exporting.cancel()
        serving.cancel()
        await asyncio.gather(exporting, serving, return_exceptions=True)
        await part.close()
        assert not engine.errors.counts


async def until_of(got: list[FlowRecord], protocol: int, ip: str, port: int) -> list[FlowRecord]:
    async with asyncio.timeout(30):
        while not (found := by_source(got, protocol, ip, port)):  # noqa: ASYNC110 (records come from the network)
            await asyncio.sleep(0.05)
    return found


def by_source(got: list[FlowRecord], protocol: int, ip: str, port: int) -> list[FlowRecord]:
    """Those of connections from outside whose Pod sees this source."""
    wanted = (FlowType.FROM_EXTERNAL, protocol, ip, port)
    return [
        one
        for one in got
        if (one.flow_type, one.protocol_identifier, one.proxy_snat_ip, one.proxy_snat_port) == wanted
    ]


def said(one: FlowRecord) -> tuple[str, str, int, str, int, str]:
    """Who asked, who answers, and by which Service."""
    return (
        one.source_ip, one.destination_ip, one.destination_transport_port,
        one.destination_service_port_name, one.destination_service_port, one.destination_service_ip,
    )  # fmt: skip
