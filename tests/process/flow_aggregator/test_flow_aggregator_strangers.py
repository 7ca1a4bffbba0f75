"""Who has proved nothing takes no place and little memory from agents and users, on each port of the aggregator that takes connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any

import grpc.aio  # type: ignore[import-untyped]
import pytest
from aggregator_world import record, until
from certificates import SERVER, made
from h2.connection import H2Connection
from h2.events import TrailersReceived
from strangers import CLIENT_HELLO_PART, Strangers, attacked, resident_kib

from antrea.errors import Unavailable
from antrea.flow_aggregator import flow_stream
from antrea.flow_aggregator.certificates import mutual_tls
from antrea.flow_aggregator.flow_buffer import FlowBuffer
from antrea.flow_aggregator.flow_stream import FlowStreams
from antrea.flow_protobuf.schema import GET_FLOWS, GetFlowsRequest, GetFlowsResponse
from antrea.ipfix.message import MessageWriter
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.grpc.flow_collector import GrpcCollector
from antrea.outside.grpc.flow_export import GrpcSession
from antrea.outside.ipfix.collector import Collector
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import Certificate, load_pair, server_tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from antrea.apis.flow import FlowRecord

NAME, TOKEN = "collector", "secret"
CA = made("ca", ca=True)
OWN = made("c", CA, usage=SERVER, names=(NAME,))
AGENT = made("agent", CA)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def half_call(size: int) -> bytes:
    """A call of the streams with a token that is none, and so many bytes of a message that never ends."""
    http = H2Connection()
    http.initiate_connection()
    http.data_to_send()  # PREFACE stands for it
    headers = {
        ":method": "POST",
        ":scheme": "https",
        ":authority": NAME,
        ":path": GET_FLOWS,
        "content-type": "application/grpc",
        "authorization": "Bearer no",
    }
    http.send_headers(1, list(headers.items()))
    message = b"\0" + (64 << 10).to_bytes(4) + bytes(size)
    for at in range(0, len(message), 16384):
        http.send_data(1, message[at : at + 16384])
    return http.data_to_send()


HALF_CALL = half_call(60 << 10)
MAX_KIB = 96 << 10
"""What the strangers of a test may take; 4,096 silent connections took 1,113 MiB before."""


def agent_tls() -> ssl.SSLContext:
    context = client_context(cadata=CA.pem)
    load_pair(context, Certificate(AGENT.pem, AGENT.key_pem))
    return context


@contextlib.asynccontextmanager
async def serving(server: Any, work: Any) -> AsyncIterator[int]:
    """Gives the port that `work` tells to its argument."""
    ports = asyncio.Queue[int]()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work(ports.put_nowait))
        try:
            yield await ports.get()
        finally:
            task.cancel()


@contextlib.asynccontextmanager
async def collector(protocol: str) -> AsyncIterator[tuple[int, Any]]:
    """A port where agents' records are taken, and what sends one there and sees it arrive."""
    got: list[FlowRecord] = []
    server: Any = GrpcCollector(got.append) if protocol == "grpc" else Collector(got.append)
    server.tls = None if protocol == "tcp" else mutual_tls(Certificate(OWN.pem, OWN.key_pem), CA.pem)
    if server.tls:
        server.tls.set_alpn_protocols(["h2"])

    def work(ready: Any) -> Any:
        if protocol == "grpc":
            return server.serve_streams("127.0.0.1", 0, ready)
        return server.serve("127.0.0.1", 0, protocol, ready)

    async with serving(server, work) as port:

        async def use() -> None:
            number, session = (
                len(got),
                GrpcSession(1) if protocol == "grpc" else CollectorSession(MessageWriter(1)),
            )
            if isinstance(session, GrpcSession):
                await session.open("127.0.0.1", port, agent_tls(), NAME)
            else:
                await session.open(
                    "127.0.0.1", port, protocol, agent_tls() if protocol == "tls" else None, NAME
                )
            await session.export([record(number)])
            await until(
                lambda: len(got) > number,
                "a record",
                lambda: session.trouble if isinstance(session, CollectorSession) else "",
            )
            # and the session stays
            await asyncio.sleep(0.5)
            await session.export([record(number)])
            await until(lambda: len(got) > number + 1, "a second record")
            await session.close()

        yield port, use


@contextlib.asynccontextmanager
async def streams() -> AsyncIterator[tuple[int, Any]]:
    """A port where users follow records, and what follows there."""
    buffer = FlowBuffer[Any](10)
    buffer.offer(record(1))
    server = FlowStreams(buffer, (Authentication(TOKEN, None), Authorization((), None)))
    context = server_tls(Certificate(OWN.pem, OWN.key_pem))
    context.set_alpn_protocols(["h2"])
    await server.present(context)
    async with serving(server, lambda ready: server.serve(0, ready)) as port:

        async def use() -> None:
            given = grpc.ssl_channel_credentials(CA.pem.encode())
            async with grpc.aio.secure_channel(
                f"127.0.0.1:{port}", given, (("grpc.ssl_target_name_override", NAME),)
            ) as client:
                call = client.unary_stream(GET_FLOWS)(
                    GetFlowsRequest().SerializeToString(),
                    metadata=(("authorization", f"Bearer {TOKEN}"),),
                    timeout=30,
                )
                [message] = [one async for one in call]
                assert GetFlowsResponse.FromString(message).flows[0].transport.source_port == 1

        yield port, use


WORLDS: dict[str, Any] = {
    **{name: lambda name=name: collector(name) for name in ("tcp", "tls", "grpc")},
    "streams": streams,
}
SILENT, HALF_HELLO, WHOLE_HELLO = (
    Strangers(1500),
    Strangers(1500, part=CLIENT_HELLO_PART),
    Strangers(1500, part=4096),
)
ATTACKS = {
    "tls-silent": ("tls", Strangers(4500)),
    "tls-half-hello": ("tls", HALF_HELLO),
    "tls-whole-hello": ("tls", WHOLE_HELLO),
    "grpc-silent": ("grpc", SILENT),
    "tcp-silent": ("tcp", SILENT),
    "tcp-half-message": ("tcp", Strangers(1500, b"\x00\x0a\xff\xff" + bytes(1000))),
    "streams-silent": ("streams", SILENT),
    "streams-handshake": ("streams", Strangers(400, tls=True)),
    "streams-preface": ("streams", Strangers(400, PREFACE, tls=True)),
    "streams-half-message": ("streams", Strangers(400, PREFACE + HALF_CALL, tls=True)),
}


async def used(use: Any) -> None:
    """Use a port as agents do, which try again: on a busy machine one handshake takes longer than its timeout."""
    while True:
        with contextlib.suppress(Unavailable):
            await use()
            return


@pytest.mark.parametrize("attack", ATTACKS)
async def test_strangers_keep_nobody_out_of_the_aggregator_and_take_little_memory(attack: str) -> None:
    name, by = ATTACKS[attack]
    async with WORLDS[name]() as (port, use):
        await use()
        before = resident_kib()
        async with attacked(port, by), asyncio.timeout(60):
            await used(use)
            grown = resident_kib() - before
        print(f"{attack}: {grown >> 10} MiB")
        assert grown < MAX_KIB
        async with asyncio.timeout(60):
            await used(use)


async def test_a_token_is_looked_at_before_a_message_comes_and_a_connection_without_a_good_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_stream, "UNPROVED_REST_SECONDS", 0.3)
    context = client_context(cadata=CA.pem)
    context.set_alpn_protocols(["h2"])
    async with streams() as (port, _), asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)
        writer.write(PREFACE + half_call(1))
        http, found = H2Connection(), dict[str, str]()
        http.initiate_connection()
        http.send_headers(
            1, [(":method", "POST"), (":scheme", "https"), (":authority", NAME), (":path", "/")]
        )
        while octets := await reader.read(65536):
            for event in http.receive_data(octets):
                if isinstance(event, TrailersReceived):
                    found = {name.decode(): value.decode() for name, value in event.headers}
        assert found["grpc-status"] == "16"
        writer.close()


async def test_clients_that_reset_at_once_leave_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The kernel does not know their address any more when the session begins."""
    async with collector("tcp") as (port, use), asyncio.timeout(60):
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.send(b"\x00")
        await use()
    assert [one for one in caplog.records if one.exc_info or one.levelname == "ERROR"] == []
