"""Faults between agents and the aggregator: it is killed under load, and clocks of Nodes differ."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest
from aggregator_world import World, write_kubeconfig
from certificate_world import api_server
from free_port import free_port
from test_flow_aggregator_process import halves, running, sent, until

from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import FlowCollector, GrpcCollector
from antrea.config.shape import Collector as CollectorAddress
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.flow_export.agent_part import destination
from antrea.features.flow_export.agent_part.destination import Destination
from antrea.features.flow_export.connection import ConnectionStore
from antrea.features.flow_export.settings import Trust
from antrea.openflow.tracked_connection import tracked_connections
from antrea.outside.clickhouse import server
from antrea.outside.ipfix import exporter
from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from test_flow_aggregator_process import Running

    from antrea.openflow.tracked_connection import TrackedConnection
    from antrea.outside.kube.client import Kube

LINE = (
    "tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport={0},dport=80,packets=5,bytes=500),"
    "reply=(src=10.0.0.2,dst=10.0.0.1,sport=80,dport={0},packets=5,bytes=500),zone=65520,mark=19,protoinfo=(state=ESTABLISHED)\n"
)
EACH, BEAT = 50, 0.1
"""New connections at each look, and seconds between looks."""


class Agent:
    """Exports connections of which there are more at each look."""

    def __init__(self, port: int, protocol: Protocol, kube: Kube, *, most_ended: int = 0) -> None:
        """With `most_ended` each connection has ended by the next look."""
        self._ends = bool(most_ended)
        self.store = ConnectionStore(0.2, 0.2, 300.0, most_ended=most_ended)
        self.opened = 0
        to = CollectorAddress("127.0.0.1", port, protocol)
        self.to = Destination(Facts(), kube, to, Trust(), "n1", self.store.due)

    async def load(self) -> None:
        gone: tuple[TrackedConnection, ...] = ()
        while True:
            new = "".join(LINE.format(20_000 + self.opened + number) for number in range(EACH))
            self.opened += EACH
            found = tuple(tracked_connections(new))
            for _ in self.store.update(found, gone, time.monotonic(), time.time(), made):
                await asyncio.sleep(0)
            gone = found if self._ends else ()
            await asyncio.sleep(BEAT)


def made(found: TrackedConnection) -> FlowRecord:
    protocol, source, source_port, target, port, _ = found.key
    return FlowRecord(
        source_ip=source, destination_ip=target, source_transport_port=source_port, destination_transport_port=port,
        protocol_identifier=protocol, flow_type=1, source_pod_name="web", destination_pod_name="db", flow_start_seconds=100,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    for pause in ("TICK", "FIRST_PAUSE", "MAX_PAUSE"):
        monkeypatch.setattr(destination, pause, 0.05)


Protocol = Literal["tcp", "grpc"]


@contextlib.asynccontextmanager
async def loaded(
    folder: Path, protocol: Protocol, **options: Any
) -> AsyncIterator[tuple[Agent, dict[str, Any]]]:
    """An agent under load, and the configuration of its aggregator."""
    port = free_port()
    config: dict[str, Any] = {"flowLogger": {"enable": True, "path": str(folder / "flows.log")}}
    if protocol == "grpc":
        grpc = {"enable": True, "port": port}
        config |= {"grpcCollector": grpc, "aggregatorTransportProtocol": "none"}
    else:
        config["collectorPort"] = port
    async with api_server({}) as (_, kube):
        write_kubeconfig(folder, kube)
        agent = Agent(port, protocol, kube, **options)
        tasks = [asyncio.create_task(agent.load()), asyncio.create_task(agent.to.run())]
        try:
            yield agent, config
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
async def test_an_aggregator_that_is_killed_under_load_gets_what_the_agent_kept_meanwhile(
    protocol: Protocol, tmp_path: Path
) -> None:
    async with loaded(tmp_path, protocol) as (agent, config):
        async with running(tmp_path, **config) as aggregator:
            await until(lambda: len(aggregator.rows) > 10 * EACH, "records under load")
            aggregator.process.kill()
            await aggregator.process.wait()
        await until(lambda: agent.to.trouble, "the agent knows")
        first = agent.opened
        await until(lambda: agent.opened > first + 10 * EACH, "connections meanwhile")
        assert agent.to.trouble
        assert (len(agent.store), agent.store.lost) == (agent.opened, 0)  # one record of each waits
        assert len(agent.store.due(0, 1)) == 0
        async with running(tmp_path, **config) as aggregator:
            wanted = {str(20_000 + number) for number in range(first, agent.opened)}
            await until(lambda: wanted <= {row[4] for row in aggregator.rows}, "all that came meanwhile")
            assert agent.to.trouble == ""


async def test_a_burst_above_the_buffer_of_a_destination_that_keeps_up_loses_nothing(tmp_path: Path) -> None:
    logger = {"enable": True, "path": str(tmp_path / "flows.log")}
    burst = [
        FlowRecord(source_ip="10.0.0.1", destination_ip="10.0.0.2", source_transport_port=port, destination_transport_port=80, protocol_identifier=6, flow_type=1)
        for port in range(20_000)
    ]  # fmt: skip
    async with running(tmp_path, flowLogger=logger, recordBufferSize=100) as aggregator:
        session = await sent(aggregator.port, "n1", "tcp", *burst)
        counted = partial(aggregator.get, "/recordmetrics")
        await until(lambda: counted()["numRecordsExported"] + counted()["numRecordsDropped"] >= 20_000, "all")
        assert counted()["numRecordsDropped"] == 0
        assert {row[4] for row in aggregator.rows} == {str(port) for port in range(20_000)}
        await session.close()


@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
async def test_what_ended_with_the_aggregator_away_is_there_later_or_counted_as_lost(
    protocol: Protocol, tmp_path: Path
) -> None:
    """Of 100 and more connections that have ended the newest 100 wait."""
    async with loaded(tmp_path, protocol, most_ended=2 * EACH) as (agent, config):
        async with running(tmp_path, **config) as aggregator:
            await until(lambda: len(aggregator.rows) > 4 * EACH, "records under load")
            before = agent.store.lost  # until it was started
            aggregator.process.kill()
            await aggregator.process.wait()
        await until(lambda: agent.to.trouble, "the agent knows")
        first = agent.opened
        await until(lambda: agent.opened > first + 20 * EACH, "connections meanwhile")
        assert agent.store.lost > before + 10 * EACH
        async with running(tmp_path, **config) as aggregator:
            await until(lambda: agent.to.trouble == "", "the agent is connected again")
            lost, last = agent.store.lost, agent.opened
            await until(lambda: agent.opened > last + 4 * EACH, "more connections")
            await until(lambda: str(20_000 + last + 2 * EACH) in ports(aggregator), "they are there")
            assert agent.store.lost == lost  # from then on nothing is
            there = ports(aggregator)
            missing = [port for port in range(20_000 + first, 20_000 + last) if str(port) not in there]
        # those that were opened before the agent knew, and were on their way or waited, are among the lost ones
        assert 0 <= lost - before - len(missing) <= 4 * EACH, (before, lost, len(missing))


def ports(aggregator: Running) -> set[str]:
    return {row[4] for row in aggregator.rows}


def later(record: FlowRecord, seconds: int, skew: int) -> FlowRecord:
    """What a Node counts so many seconds after the start, by its own clock."""
    return msgspec.structs.replace(
        record, flow_start_seconds=1000 + skew, flow_end_seconds=1000 + skew + seconds, flow_end_reason=2,
        octet_total_count=seconds * 1000, octet_delta_count=10_000,
    )  # fmt: skip


@pytest.mark.parametrize("skew", [60, -60])
async def test_halves_of_nodes_whose_clocks_differ_by_a_minute_are_one_connection(
    skew: int, tmp_path: Path
) -> None:
    """Each side's times and rates are of its own clock."""
    got: list[FlowRecord] = []
    ports: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", ports.put_nowait))
    to = {"enable": True, "address": f"127.0.0.1:{await ports.get()}:tcp"}
    async with running(
        tmp_path, flowCollector=to, clusterID="c1", activeFlowRecordTimeout="1s"
    ) as aggregator:
        source, target = halves()
        for seconds in (10, 20, 30):
            for node, half, clock in (("n1", source, 0), ("n2", target, skew)):
                one = later(half, seconds, clock)
                await (await sent(aggregator.port, node, "tcp", one)).close()
            await until(lambda: got and min(octets(got[-1])) == seconds * 1000, "a joined record")  # noqa: B023
        metrics = await asyncio.to_thread(aggregator.get, "/recordmetrics")
        assert (metrics["numRecordsDropped"], metrics["numFlows"]) == (0, 1)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    last = got[-1]
    assert (last.flow_end_seconds_from_source_node, last.flow_end_seconds_from_destination_node) == (
        1030,
        1030 + skew,
    )
    assert last.flow_end_seconds == 1030 + max(skew, 0)
    for name in ("throughput", "throughput_from_source_node", "throughput_from_destination_node"):
        # a record that was due between two halves has none of the later one
        assert {getattr(one, name) for one in got} in ({8000}, {0, 8000}), name


def octets(record: FlowRecord) -> tuple[int, int]:
    """As each side counts them."""
    return record.octet_total_count_from_source_node, record.octet_total_count_from_destination_node


async def test_a_collector_that_reads_nothing_is_named_and_costs_the_log_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts the connection, and the kernel takes what it has room for."""
    monkeypatch.setattr(exporter, "TIMEOUT", 0.3)
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.bind(("127.0.0.1", 0))
        stuck.listen()
        to = FlowCollector(enable=True, address=f"127.0.0.1:{stuck.getsockname()[1]}:tcp")
        async with api_server({}) as (_, kube):
            here = World(
                tmp_path, kube, flow_collector=to, record_buffer_size=500, cluster_id="c1",
                aggregator_transport_protocol="tcp", grpc_collector=GrpcCollector(enable=False),
            )  # fmt: skip
            async with here.running():
                states = {one.name: one for one in here.aggregator._to.all}
                collector, log = states["flowCollector"], states["flowLogger"]
                offered = 0
                async with asyncio.timeout(60):
                    while not (collector.trouble and collector.dropped):
                        for _ in range(100):
                            offered += 1
                            here.aggregator._offer(FlowRecord(source_ip="10.0.0.1", source_transport_port=offered % 65536))  # fmt: skip
                        while log.exported < offered:  # noqa: ASYNC110 (a thread writes the file)
                            await asyncio.sleep(0)
                assert "it takes nothing" in collector.trouble
                assert (log.trouble, log.dropped) == ("", 0)
                assert here.ports == [number % 65536 for number in range(1, offered + 1)]


async def test_a_clickhouse_server_that_does_not_answer_is_named_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        to = server.ClickHouseServer(url, "default", "", "", ssl.create_default_context)
        with pytest.raises(Unavailable, match=r"no answer within 0\.3 s"):
            await to.run("SELECT 1")
        await to.close()
