"""A Node whose agent exports records to a collector of the test, and the Pod of another Node behind a cable."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
from agent_context import agent_context
from proxy_node import GATEWAYS, SERVER, Node

from antrea.config.agent_sections import FlowExporter
from antrea.features.flow_export.agent_part.part import FlowExportPart
from antrea.features.network_policy.agent_part.part import PolicyPart
from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antrea.apis.flow import FlowRecord
    from antrea.config.agent import AgentConfig

REMOTE = ("10.10.1.12", "fd00:10:1::c")
KINDS = {"SOCK_STREAM": 6, "SOCK_DGRAM": 17}
ADDRESS = 'peer[0].removeprefix("::ffff:")'
BOTH_ENDS = SERVER.replace(ADDRESS, f'f"{{{ADDRESS}}} {{peer[1]}}"'.replace('("::ffff:")', "('::ffff:')"))
"""Answers with the port of whom it sees, too."""


class FlowNode(Node):
    """With connections between its Pods, hosts outside and the Pod of another Node."""

    def plug_pod_of_peer(self) -> str:
        """At the other end of a cable in the tunnel's place, with the way back to this Node's gateways."""
        peer = self.plug_peer()
        self.netns.sh(f"ip addr add {REMOTE[0]}/32 dev lo; ip addr add {REMOTE[1]}/128 dev lo nodad", peer)
        for gateway, own in zip(GATEWAYS, REMOTE, strict=True):
            self.netns.sh(f"ip route add {gateway} dev eth0 src {own}", peer)
            self.netns.sh(
                f"ip neigh replace {gateway} lladdr {self.mac_of('antrea-gw0')} dev eth0 nud permanent", peer
            )
        return peer

    @contextlib.asynccontextmanager
    async def exporting(self, config: AgentConfig) -> AsyncIterator[list[FlowRecord]]:
        """The agent with AntreaProxy, and all records that come of it."""
        got: list[FlowRecord] = []
        ports: asyncio.Queue[int] = asyncio.Queue()
        serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", ports.put_nowait))
        exporter = FlowExporter(
            enable=True, flow_collector_addr=f"127.0.0.1:{await ports.get()}:tcp",
            flow_poll_interval="1s", active_flow_export_timeout="1s",
        )  # fmt: skip
        config = msgspec.structs.replace(
            config,
            flow_exporter=exporter,
            feature_gates={"FlowExporter": True},
            ovs_run_dir=str(self.switch.directory),
        )
        context = agent_context(self.facts, config)
        context.parts.append(PolicyPart(context))
        part = FlowExportPart(context)
        async with self.agent(config, "AntreaProxy", "FlowExporter") as engine:
            tasks = [asyncio.create_task(part.run()), serving]
            yield got
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await part.close()
            assert not engine.errors.counts


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 (records come from the network)
            await asyncio.sleep(0.05)


def said(one: FlowRecord) -> tuple[str, str, int, str, int, str]:
    """Who asked, who answers, and by which Service."""
    return (
        one.source_ip, one.destination_ip, one.destination_transport_port,
        one.destination_service_port_name, one.destination_service_port, one.destination_service_ip,
    )  # fmt: skip
