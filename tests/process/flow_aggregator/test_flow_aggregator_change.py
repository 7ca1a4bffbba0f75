"""A configuration that changes while the program runs: destinations are exchanged, sessions go on, and what cannot work is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import urllib.request
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
from aggregator_world import write_kubeconfig
from certificate_world import api_server
from free_port import free_port
from test_flow_aggregator_process import halves, running, sent, until
from test_flow_stream import between, call, ports, quick, streaming

from antrea.config.flow_aggregator import FlowStreamService
from antrea.flow_aggregator.destination import Destination
from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from certificate_world import ApiServer
    from test_flow_aggregator_process import Running

    from antrea.apis.flow import FlowRecord
    from antrea.outside.ipfix.exporter import CollectorSession

__all__ = ["quick"]


def write(aggregator: Running, **config: Any) -> None:
    """As kubelet does: the file is another one at once."""
    fresh = aggregator.folder / "conf.part"
    fresh.write_text(json.dumps({**aggregator.config, **config}))
    fresh.replace(aggregator.folder / "conf")


def log_of(aggregator: Running) -> str:
    return (aggregator.folder / "log").read_text()


def metrics(aggregator: Running) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    token = {"Authorization": f"Bearer {(aggregator.folder / 'token').read_text()}"}
    asked = urllib.request.Request(f"https://127.0.0.1:{aggregator.api}/metrics", headers=token)
    with urllib.request.urlopen(asked, context=context, timeout=10) as answer:
        return bytes(answer.read()).decode()


@contextlib.asynccontextmanager
async def collecting(port: int) -> AsyncIterator[list[FlowRecord]]:
    got: list[FlowRecord] = []
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", port, "tcp", lambda _: None))
    yield got
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def joined(sessions: Sequence[CollectorSession], port: int) -> None:
    """A connection from this port, by both Nodes."""
    for session, half in zip(sessions, halves(), strict=True):
        await session.export([msgspec.structs.replace(half, source_transport_port=port)])


def ports_in(path: Path) -> list[int]:
    return [int(line.split(",")[4]) for line in path.read_text().splitlines()] if path.exists() else []


async def test_destinations_are_exchanged_and_sessions_of_agents_go_on(tmp_path: Path) -> None:
    """The address of a collector that is away is corrected: what waited goes to the right one."""
    first, second, right = tmp_path / "one.log", tmp_path / "two.log", free_port()
    logger = {"enable": True, "path": str(first)}
    wrong = {"enable": True, "address": f"127.0.0.1:{free_port()}:tcp"}
    async with running(tmp_path, flowLogger=logger) as aggregator, collecting(right) as got:
        sessions = [await sent(aggregator.port, node, "tcp", half) for node, half in zip(("n1", "n2"), halves(), strict=True)]  # fmt: skip
        await until(lambda: ports_in(first) == [4000], "a line")
        write(aggregator, flowLogger=logger, flowCollector=wrong)
        await until(lambda: 'begun=["flowCollector"]' in log_of(aggregator), "the collector's turn")
        await joined(sessions, 4001)
        await until(lambda: ports_in(first) == [4000, 4001], "the log goes on")
        await until(lambda: "Failed to write flow records" in log_of(aggregator), "the collector is away")
        write(aggregator, flowLogger={**logger, "path": str(second)}, flowCollector={**wrong, "address": f"127.0.0.1:{right}:tcp"})  # fmt: skip
        await until(lambda: [one.source_transport_port for one in got] == [4001], "what waited")
        await joined(sessions, 4002)
        await until(lambda: ports_in(second) == [4002], "the new file")
        await until(lambda: [one.source_transport_port for one in got] == [4001, 4002], "the new collector")
        write(aggregator, flowLogger={"enable": False})
        await until(lambda: aggregator.get("/destinations") == [], "all are off")
        await joined(sessions, 4003)
        write(aggregator, flowLogger={**logger, "path": str(second)})
        await until(lambda: len(aggregator.get("/destinations")) == 1, "it is on again")
        await joined(sessions, 4004)
        await until(lambda: ports_in(second) == [4002, 4004], "the same file")
        assert ports_in(first) == [4000, 4001]
        assert "Starting anew" not in log_of(aggregator)
        assert aggregator.get("/recordmetrics")["numConnToCollector"] == 2
        for session in sessions:
            await session.close()


async def test_clickhouse_and_s3_are_turned_on_and_off(tmp_path: Path) -> None:
    click_house = {"enable": True, "databaseURL": f"http://127.0.0.1:{free_port()}", "commitInterval": "1s"}
    bucket = {"enable": True, "bucketName": "flows", "uploadInterval": "1s"}
    async with running(tmp_path) as aggregator:
        write(aggregator, clickHouse=click_house, s3Uploader=bucket)
        names = ["clickHouse", "s3Uploader"]
        await until(lambda: [one["name"] for one in aggregator.get("/destinations")] == names, "both are on")
        for node, half in zip(("n1", "n2"), halves(), strict=True):
            await (await sent(aggregator.port, node, "tcp", half)).close()
        await until(lambda: all(one["trouble"] for one in aggregator.get("/destinations")), "both are tried")
        [clickhouse, _] = aggregator.get("/destinations")
        assert "Connect call failed" in clickhouse["trouble"]
        assert "object at" not in clickhouse["trouble"]
        write(aggregator)
        await until(lambda: aggregator.get("/destinations") == [], "both are off")
        log = log_of(aggregator)
        await until(
            lambda: log_of(aggregator).count("Dropped records that waited") == 2, "what is lost is named"
        )
        assert "Starting anew" not in log


def events(server: ApiServer) -> list[tuple[str, str, str, str]]:
    """Type, reason and message of Events, and what they are about."""
    found = [one for path, one in server.objects.items() if "/events/" in path]
    about = [one["involvedObject"] for one in found]
    return [
        (one["type"], one["reason"], one["message"], f"{of['kind']}/{of['name']}")
        for one, of in zip(found, about, strict=True)
    ]


CONFIG_MAP = "ConfigMap/flow-aggregator-configmap"


async def test_what_cannot_work_is_refused_and_what_was_before_goes_on(tmp_path: Path) -> None:
    logger = {"enable": True, "path": str(tmp_path / "flows.log")}
    why = "s3Uploader.bucketName: names no bucket"
    rejected = (
        "Warning",
        "ConfigRejected",
        f"{why}; the last good configuration stays in effect",
        CONFIG_MAP,
    )
    accepted = "flow-aggregator.conf: accepted and in effect, after one that was refused"
    async with AsyncExitStack() as last:
        server, kube = await last.enter_async_context(api_server({}))
        write_kubeconfig(tmp_path, kube)
        aggregator = await last.enter_async_context(running(tmp_path, flowLogger=logger))
        assert aggregator.get("/conditions") == []
        write(aggregator, flowLogger=logger, s3Uploader={"enable": True})
        await until(lambda: why in log_of(aggregator), "it is named")
        await until(lambda: events(server) == [rejected], "an Event")
        assert aggregator.get("/conditions") == [{"type": "ConfigRejected", "message": why}]
        assert "antrea_flow_aggregator_configuration_rejected 1" in await asyncio.to_thread(
            metrics, aggregator
        )
        for node, half in zip(("n1", "n2"), halves(), strict=True):
            await (await sent(aggregator.port, node, "tcp", half)).close()
        await until(lambda: len(aggregator.rows) == 1, "the log goes on")
        write(aggregator, flowLogger=logger)
        await until(lambda: "configuration_rejected 0" in metrics(aggregator), "it is mended")
        await until(
            lambda: events(server) == [rejected, ("Normal", "ConfigAccepted", accepted, CONFIG_MAP)],
            "another Event",
        )
        assert aggregator.get("/conditions") == []


async def test_a_program_that_cannot_start_with_its_configuration_says_so_in_an_event(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("mode: Proxy\nflowLogger: {enable: true}\n")
    async with api_server({}) as (server, kube):
        write_kubeconfig(tmp_path, kube)
        words = ("antrea.flow_aggregator.main", "--config", "conf", "--kubeconfig", "kubeconfig")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *words, cwd=tmp_path, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        assert process.returncode == 1
        why = "flowLogger.enable: must be false in mode Proxy, whose records go to flowCollector alone"
        assert said.decode().splitlines()[-1] == f"antrea-flow-aggregator: {why}"
        message = f"{why}; the flow aggregator does not start"
        assert events(server) == [("Warning", "ConfigRejected", message, CONFIG_MAP)]


async def test_another_change_builds_the_program_anew_in_its_process(tmp_path: Path) -> None:
    logger, moved = {"enable": True, "path": str(tmp_path / "flows.log")}, free_port()
    async with running(tmp_path, flowLogger=logger) as aggregator:
        write(aggregator, flowLogger=logger, collectorPort=moved)
        await until(lambda: log_of(aggregator).count("Taking flow records") == 2, "it takes records")
        for node, half in zip(("n1", "n2"), halves(), strict=True):
            await (await sent(moved, node, "tcp", half)).close()
        await until(lambda: len(aggregator.rows) == 1, "a line")
        assert aggregator.process.returncode is None
        os.kill(aggregator.process.pid, 0)


async def test_streams_are_turned_off_and_on_at_another_port(tmp_path: Path) -> None:
    async with streaming(tmp_path) as (here, client):
        here.aggregator._offer(between(1, "shop", "shop"))
        assert await ports(client, "root") == [1]
        followed = call(client, "root", follow=True)
        assert await followed.read()
        config = here.aggregator._config
        off = msgspec.structs.replace(config, flow_stream_service=FlowStreamService())
        assert await here.aggregator.change(off)
        assert await followed.code()
        moved = free_port()
        on = msgspec.structs.replace(config, flow_stream_service=FlowStreamService(enable=True, port=moved))
        assert await here.aggregator.change(on)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", moved)
                    writer.close()
                    break
                await asyncio.sleep(0.02)


async def test_what_a_destination_was_writing_is_written_once_when_it_changes(tmp_path: Path) -> None:
    """Records come all the time; the file changes ten times."""
    config = {"enable": True, "path": str(tmp_path / "flows.log")}
    async with running(tmp_path, flowLogger=config) as aggregator:
        sessions = [await sent(aggregator.port, node, "tcp", half) for node, half in zip(("n1", "n2"), halves(), strict=True)]  # fmt: skip
        for turn in range(3):
            for port in range(5000 + 200 * turn, 5200 + 200 * turn):
                await joined(sessions, port)
            write(aggregator, flowLogger={**config, "maxSize": 50 + turn})
            turns = turn + 1
            await until(lambda: log_of(aggregator).count("Changed the destinations") == turns, "another")  # noqa: B023 (awaited here)
        await until(lambda: len(aggregator.rows) >= 601, "all lines")
        assert sorted(int(row[4]) for row in aggregator.rows) == [4000, *range(5000, 5600)]
        for session in sessions:
            await session.close()


class Slow:
    """An output that takes what it is given only once it is let."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.got: list[FlowRecord] = []

    async def write(self, records: Sequence[FlowRecord]) -> None:
        await self.let.wait()
        self.got.extend(records)

    async def close(self) -> None:
        self.let.set()


async def test_the_end_waits_for_what_is_being_written() -> None:
    output = Slow()
    to = Destination("slow", output, 10)
    working = asyncio.create_task(to.run())
    for half in halves():
        to.offer(half)
    await asyncio.sleep(0)
    to.end()
    output.let.set()
    async with asyncio.timeout(60):
        await working
    assert len(output.got) == 2
