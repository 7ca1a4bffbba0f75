"""Records over TLS: agents and aggregator know each other by an authority in the cluster, and nobody else gets a record in."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import re
import socket
import ssl
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, api_server
from certificates import CLIENT, made

from antrea.agent.flow_export import destination
from antrea.agent.flow_export.destination import Destination
from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import AggregatorApi, FlowAggregatorConfig, FlowLogger
from antrea.config.shape import Collector as CollectorAddress
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.flow_export.settings import Trust
from antrea.flow_aggregator import certificates
from antrea.flow_aggregator.main import Aggregator
from antrea.ipfix.message import MessageWriter
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.kube.secret import SecretData
from antrea.outside.kube.tls_secret import pair_of
from antrea.outside.tls import authority
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import Certificate, load_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from antrea.outside.kube.client import Kube

NAME = "flow-aggregator.flow-aggregator.svc"
WHERE = "/api/v1/namespaces/flow-aggregator"
AUTHORITY, AGENTS = (f"{WHERE}/secrets/flow-aggregator-{name}" for name in ("ca-tls", "client-tls"))
PUBLISHED = f"{WHERE}/configmaps/flow-aggregator-ca"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr(certificates, "RETRY_SECONDS", 0.02)
    for pause in ("TICK", "FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(destination, pause, 0.05)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 (the network and other processes)
            await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class World:
    """The aggregator in this process, on the cluster's API server."""

    def __init__(self, folder: Path, kube: Kube) -> None:
        self.folder, self.kube, self.api = folder, kube, free_port()
        text = {
            "clusters": [{"name": "c", "cluster": {"server": kube.access.url}}],
            "contexts": [{"name": "x", "context": {"cluster": "c"}}],
            "current-context": "x",
        }
        (folder / "kubeconfig").write_text(json.dumps(text))
        config = FlowAggregatorConfig(
            collector_port=free_port(),
            api_server=AggregatorApi(api_port=self.api),
            flow_logger=FlowLogger(enable=True, path=str(folder / "flows.log")),
        )
        self.aggregator = Aggregator(config, folder / "token", str(folder / "kubeconfig"))

    @property
    def ports(self) -> list[int]:
        """Source ports of the log's records."""
        path = self.folder / "flows.log"
        return [int(row[4]) for row in csv.reader(path.read_text().splitlines())] if path.exists() else []

    def rejected(self) -> int:
        token, context = (self.folder / "token").read_text(), ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        asked = urllib.request.Request(
            f"https://127.0.0.1:{self.api}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
            text = answer.read().decode()
        found = re.search(r"^antrea_flow_aggregator_rejected_session_count (\d+)", text, re.MULTILINE)
        assert found
        return int(found[1])

    async def send(self, port: int, pair: Certificate | None, root: str, *, host: str = "127.0.0.1") -> None:
        """One record with this source port, as a client with this certificate."""
        tls = client_context(cadata=root)
        if pair:
            load_pair(tls, pair)
        session = CollectorSession(MessageWriter(1))
        try:
            await session.open(host, self.aggregator.port, "tls", tls, NAME)
            await session.export([record(port)])
            # until it is taken or refused
            await until(lambda: port in self.ports or session.trouble)
            session.expect_open()
        finally:
            await session.close()


def record(port: int) -> FlowRecord:
    return FlowRecord(
        source_ip="10.1.0.5", destination_ip="10.2.0.7", source_transport_port=port, destination_transport_port=80,
        protocol_identifier=6, flow_type=1, source_pod_name="web", destination_pod_name="db",
        flow_start_seconds=100, flow_end_seconds=110,
    )  # fmt: skip


def held(server: ApiServer, path: str) -> Certificate:
    pair = pair_of(SecretData(data=server.objects[path]["data"]))
    assert pair
    return pair


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[World, ApiServer]]:
    async with api_server({}) as (server, kube):
        found = World(folder, kube)
        running = asyncio.create_task(found.aggregator.run())
        try:
            await until(lambda: found.aggregator.listens.is_set() or running.done())
            yield found, server
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_record_of_who_has_not_the_certificate_of_agents_is_not_taken(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, server):
        signer, client = held(server, AUTHORITY), held(server, AGENTS)
        root = signer.certificate_pem
        assert server.objects[PUBLISHED]["data"] == {"ca.crt": root}
        stranger = made("agent", made("authority", ca=True), usage=CLIENT)
        # a server's certificate of the same authority is none of a client
        served = authority.issue(signer, "server", usage="server", names=("x",))
        for at, pair in enumerate((None, Certificate(stranger.pem, stranger.key_pem), served)):
            with pytest.raises(Unavailable):
                await here.send(1000 + at, pair, root)
        writer = (await asyncio.open_connection("127.0.0.1", here.aggregator.port))[1]
        messages = MessageWriter(1)
        writer.writelines(
            [*messages.templates(0), *(one for one, _ in messages.data([record(1005)], 0, 4000))]
        )
        await writer.drain()
        async with asyncio.timeout(60):
            while await asyncio.to_thread(here.rejected) < 4:  # noqa: ASYNC110 (asked over the network)
                await asyncio.sleep(0.02)
        writer.close()
        await here.send(2000, client, root)
        await here.send(2001, client, root, host="::1")
        assert sorted(here.ports) == [2000, 2001]


async def test_a_new_authority_ends_old_sessions_and_agents_come_back_by_themselves(tmp_path: Path) -> None:
    waiting: list[FlowRecord] = []

    def due(_: float, most: int) -> list[FlowRecord]:
        found, waiting[:] = waiting[:most], waiting[most:]
        return found

    async with world(tmp_path) as (here, server):
        before, client = held(server, AUTHORITY), held(server, AGENTS)
        address = CollectorAddress("127.0.0.1", here.aggregator.port, "tls")
        agent = Destination(Facts(), here.kube, address, Trust(), "n1", due)
        running = asyncio.create_task(agent.run())
        waiting.append(record(3000))
        await until(lambda: here.ports == [3000])
        server.drop(AUTHORITY)
        await until(lambda: agent.connections == 2 and not agent.trouble)
        waiting.append(record(3001))
        await until(lambda: here.ports == [3000, 3001])
        after = held(server, AUTHORITY)
        assert after.certificate_pem != before.certificate_pem
        assert server.objects[PUBLISHED]["data"] == {"ca.crt": after.certificate_pem}
        with pytest.raises(Unavailable):
            await here.send(3002, client, after.certificate_pem)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert 3002 not in here.ports


@pytest.mark.parametrize("path", [AGENTS, PUBLISHED])
async def test_what_somebody_spoils_or_deletes_is_made_again(path: str, tmp_path: Path) -> None:
    async with world(tmp_path) as (here, server):
        root = held(server, AUTHORITY).certificate_pem
        wrong: dict[str, Any] = {
            "data": {"tls.crt": "", "tls.key": ""} if path == AGENTS else {"ca.crt": "x"}
        }
        for port, spoil in ((4000, True), (4001, False)):
            server.writes.clear()
            if spoil:
                server.put(path, wrong)
            else:
                server.drop(path)
            await until(lambda: path in server.writes and path in server.objects)
            await here.send(port, held(server, AGENTS), server.objects[PUBLISHED]["data"]["ca.crt"])
        assert held(server, AUTHORITY).certificate_pem == root


async def test_certificates_that_cannot_be_had_are_named_and_nothing_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api_server({}) as (server, kube):
        server.refuse = "secrets is forbidden"
        here = World(tmp_path, kube)
        running = asyncio.create_task(here.aggregator.run())
        await until(lambda: "Failed to provide the certificates" in caplog.text)
        assert not here.aggregator.listens.is_set()
        server.refuse = ""
        await until(here.aggregator.listens.is_set)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
