"""Records over TLS: agents and aggregator know each other by an authority in the cluster, and nobody else gets a record in."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from aggregator_world import AGENTS, AUTHORITY, PUBLISHED, World, held, record, until, world
from certificate_world import api_server
from certificates import CLIENT, made
from free_port import free_port

from antrea.config.shape import Collector as CollectorAddress
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.flow_export.agent_part import destination
from antrea.features.flow_export.agent_part.destination import Destination
from antrea.features.flow_export.settings import Trust
from antrea.flow_aggregator import certificates
from antrea.ipfix.message import MessageWriter
from antrea.outside.tls import authority
from antrea.outside.tls.server_context import Certificate

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.apis.flow import FlowRecord


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr(certificates, "RETRY_SECONDS", 0.02)
    for pause in ("TICK", "FIRST_PAUSE", "MAX_PAUSE"):
        monkeypatch.setattr(destination, pause, 0.05)


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
        writer = (await asyncio.open_connection("127.0.0.1", here.aggregator.intake.port))[1]
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
        address = CollectorAddress("127.0.0.1", here.aggregator.intake.port, "tls")
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
            await until(
                lambda: path in server.writes and path in server.objects,
                f"{path} is made again",
                lambda: f"written: {server.writes}, there: {sorted(server.objects)}; {here.state()}",
            )
            await here.send(port, held(server, AGENTS), server.objects[PUBLISHED]["data"]["ca.crt"])
        assert held(server, AUTHORITY).certificate_pem == root


@pytest.mark.parametrize("lacking", ["files", "processes"])
async def test_a_lack_of_files_or_processes_is_named_and_ends_nothing(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk, or without memory for a process that makes certificates."""
    async with world(tmp_path) as (here, server):
        with monkeypatch.context() as for_a_while:
            absent = str(tmp_path / "absent")
            for_a_while.setattr(
                *((tempfile, "tempdir") if lacking == "files" else (sys, "executable")), absent
            )
            server.drop(AGENTS)
            await until(
                lambda: "Failed to provide the certificates" in caplog.text, "it is named", here.state
            )
        server.drop(PUBLISHED)
        await until(lambda: {AGENTS, PUBLISHED} <= {*server.objects}, "they are made again", here.state)
        await here.send(5000, held(server, AGENTS), held(server, AUTHORITY).certificate_pem)


async def test_an_aggregator_that_ends_is_an_error_of_its_test(tmp_path: Path) -> None:
    """A port that is taken, for one; without this a test would wait for what cannot come."""
    port = free_port()
    async with api_server({}) as (_, kube):
        with socket.create_server(("", port)), pytest.RaisesGroup(Unavailable, flatten_subgroups=True):
            async with World(tmp_path, kube, collector_port=port).running():
                await asyncio.Event().wait()


async def test_certificates_that_cannot_be_had_are_named_and_nothing_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api_server({}) as (server, kube):
        server.refuse = "secrets is forbidden"
        here = World(tmp_path, kube)
        running = asyncio.create_task(here.aggregator.run())
        await until(lambda: "Failed to provide the certificates" in caplog.text)
        assert not here.aggregator.intake.listens.is_set()
        told = {one.type: one.message for one in here.aggregator._conditions()}
        assert "records are not taken yet over tls and grpc: " in told["RecordsNotTaken"]
        assert "secrets is forbidden" in told["CertificatesFailing"]
        server.refuse = ""
        await until(here.aggregator.intake.listens.is_set)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
