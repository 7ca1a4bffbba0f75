"""The aggregator as a process: two agents' halves come in over the network, joined lines and messages go out."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import signal
import ssl
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from free_port import free_port

from antrea.apis.flow import FlowRecord
from antrea.ipfix.message import MessageWriter, domain_of
from antrea.ipfix.template import Contents
from antrea.outside.ipfix.collector import Collector
from antrea.outside.ipfix.exporter import CollectorSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TIMEOUT = 60.0


class Running:
    """The program, its ports and its folder."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder, self.port, self.api = folder, free_port(), free_port()
        api = {"apiPort": self.api, **config.get("apiServer", {})}
        own = {
            "aggregatorTransportProtocol": "tcp",
            "collectorPort": self.port,
            "grpcCollector": {"enable": False},
        }
        self.config = {**own, **config, "apiServer": api}
        self.process: asyncio.subprocess.Process

    def get(self, path: str) -> Any:
        token = (self.folder / "token").read_text()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        asked = urllib.request.Request(
            f"https://127.0.0.1:{self.api}{path}", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, context=context, timeout=10) as answer:
            return json.load(answer)

    @property
    def rows(self) -> list[list[str]]:
        path = self.folder / "flows.log"
        return list(csv.reader(path.read_text().splitlines())) if path.exists() else []


async def until(true: Callable[[], Any], what: str) -> None:
    try:
        async with asyncio.timeout(TIMEOUT):
            while not true():  # noqa: ASYNC110 (files and answers of another process)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


@contextlib.asynccontextmanager
async def running(folder: Path, **config: Any) -> AsyncIterator[Running]:
    """The program with these keys; on the cluster of the kubeconfig in `folder`, if there is one."""
    found = Running(folder, config)
    (folder / "conf").write_text(json.dumps(found.config))
    words = [sys.executable, "-P", "-m", "antrea.flow_aggregator.main", "--config", str(folder / "conf")]
    if (kubeconfig := folder / "kubeconfig").exists():
        words += ["--kubeconfig", str(kubeconfig)]
    with (folder / "log").open("w") as log:
        found.process = await asyncio.create_subprocess_exec(
            *words, "--token-file", str(folder / "token"), stderr=log, stdout=log
        )
        try:
            await until(lambda: "Taking flow records" in (folder / "log").read_text(), "it listens")
            yield found
        finally:
            if found.process.returncode is None:
                found.process.terminate()
            assert await found.process.wait() in (0, -signal.SIGKILL), (folder / "log").read_text()


def halves() -> tuple[FlowRecord, FlowRecord]:
    ends: dict[str, Any] = {
        "source_ip": "10.1.0.5", "destination_ip": "10.2.0.7", "source_transport_port": 4000,
        "destination_transport_port": 80, "protocol_identifier": 6, "flow_type": 2,
        "flow_start_seconds": 100, "flow_end_seconds": 110,
    }  # fmt: skip
    return (
        FlowRecord(source_pod_name="web", source_pod_namespace="shop", source_node_name="n1", **ends),
        FlowRecord(
            destination_pod_name="db", destination_pod_namespace="shop", destination_node_name="n2", **ends
        ),
    )


async def sent(port: int, node: str, protocol: str, *records: FlowRecord) -> CollectorSession:
    contents = Contents(requests=any(one.http_vals for one in records))
    session = CollectorSession(MessageWriter(domain_of(node), contents=contents))
    await session.open("127.0.0.1", port, protocol)
    assert await session.export(records) == len(records)
    return session


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
async def test_the_halves_of_two_nodes_are_one_line_of_the_log(protocol: str, tmp_path: Path) -> None:
    logger = {"enable": True, "path": str(tmp_path / "flows.log")}
    async with running(tmp_path, flowLogger=logger, aggregatorTransportProtocol=protocol) as aggregator:
        sessions = [
            await sent(aggregator.port, node, protocol, record)
            for node, record in zip(("n1", "n2"), halves(), strict=True)
        ]
        await until(lambda: aggregator.rows, "a line")
        [row] = aggregator.rows
        assert row[2:13] == [
            "10.1.0.5",
            "10.2.0.7",
            "4000",
            "80",
            "TCP",
            "web",
            "shop",
            "n1",
            "db",
            "shop",
            "n2",
        ]
        [found] = await asyncio.to_thread(aggregator.get, "/flowrecords?srcport=4000")
        assert (found["sourcePodName"], found["destinationPodName"]) == ("web", "db")
        metrics = await asyncio.to_thread(aggregator.get, "/recordmetrics")
        assert (metrics["numRecordsReceived"], metrics["numRecordsExported"], metrics["numFlows"]) == (
            2,
            1,
            1,
        )
        assert metrics["withLogExporter"]
        assert metrics["numConnToCollector"] == (2 if protocol == "tcp" else 0)
        for session in sessions:
            await session.close()


async def test_a_collector_that_is_away_gets_what_waited_and_the_log_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    logger, port = {"enable": True, "path": str(tmp_path / "flows.log")}, free_port()
    to = {"enable": True, "address": f"127.0.0.1:{port}:tcp"}
    async with running(tmp_path, flowLogger=logger, flowCollector=to, clusterID="c1") as aggregator:
        for node, record in zip(("n1", "n2"), halves(), strict=True):
            await (await sent(aggregator.port, node, "tcp", record)).close()
        await until(lambda: aggregator.rows, "a line, while the collector is away")
        got: list[FlowRecord] = []
        serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", port, "tcp", lambda _: None))
        await until(lambda: got, "the record")
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert (got[0].source_pod_name, got[0].destination_pod_name, got[0].cluster_id) == ("web", "db", "c1")


async def test_a_session_that_sends_anything_else_ends_and_others_go_on(tmp_path: Path) -> None:
    logger = {"enable": True, "path": str(tmp_path / "flows.log")}
    async with running(tmp_path, flowLogger=logger) as aggregator:
        session = await sent(aggregator.port, "n1", "tcp", halves()[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", aggregator.port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(40000)
        )  # more than the length that it seems to have
        async with asyncio.timeout(TIMEOUT):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        assert await session.export([halves()[1]]) == 1
        await until(lambda: aggregator.rows, "a line")
        await session.close()


def test_a_configuration_that_cannot_work_is_named_and_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("aggregatorTransportProtocol: carrier-pigeon\n")
    words = [sys.executable, "-P", "-m", "antrea.flow_aggregator.main", "--config", str(tmp_path / "conf")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 1
    assert "antrea-flow-aggregator: flow-aggregator.conf: aggregatorTransportProtocol" in done.stderr
