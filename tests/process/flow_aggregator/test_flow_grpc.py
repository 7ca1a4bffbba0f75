"""Records by gRPC: from our agent to our aggregator, and with grpcio, which shares no code with either, as each of both."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import ssl
from typing import TYPE_CHECKING, Any

import grpc.aio  # type: ignore[import-untyped]
import msgspec
import pytest
from aggregator_world import AGENTS, AUTHORITY, NAME, World, held, record, until, world
from h2.config import H2Configuration
from h2.connection import H2Connection

from antrea.apis.flow import FlowRecord
from antrea.config.shape import Collector as CollectorAddress
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.flow_export.agent_part import destination
from antrea.features.flow_export.agent_part.destination import Destination
from antrea.features.flow_export.settings import Trust
from antrea.flow_aggregator import certificates
from antrea.flow_protobuf.record import read, write
from antrea.flow_protobuf.schema import EXPORT, ExportRequest, ExportResponse
from antrea.outside.grpc.flow_export import GrpcSession
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import load_pair, self_signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from certificate_world import ApiServer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr(certificates, "RETRY_SECONDS", 0.02)
    for pause in ("TICK", "FIRST_PAUSE", "MAX_PAUSE"):
        monkeypatch.setattr(destination, pause, 0.05)


def whole(port: int, version6: bool) -> FlowRecord:
    """A record with a value in every field that agents fill."""
    ips = ("fd00::5", "fd00::7", "fd01::1") if version6 else ("10.1.0.5", "10.2.0.7", "10.96.0.1")
    texts: dict[str, Any] = {
        name: f"{name}-é"
        for name, kind in FlowRecord.__annotations__.items()
        if kind == "str" and not name.endswith("_labels") and name.startswith(("source_pod", "source_node", "destination_pod", "destination_node", "ingress", "egress_n", "egress_uid", "destination_service_port_name", "destination_service_uid"))
    }  # fmt: skip
    return FlowRecord(
        **texts, source_ip=ips[0], destination_ip=ips[1], destination_cluster_ip=ips[2],
        destination_service_ip=ips[2], egress_ip="192.0.2.9", source_transport_port=port,
        destination_transport_port=80, destination_service_port=8080, protocol_identifier=6, tcp_state="ESTABLISHED",
        flow_type=1, flow_start_seconds=100, flow_end_seconds=110, flow_end_reason=2,
        packet_total_count=1, octet_total_count=2**40, packet_delta_count=3, octet_delta_count=4,
        reverse_packet_total_count=5, reverse_octet_total_count=6, reverse_packet_delta_count=7,
        reverse_octet_delta_count=8, ingress_network_policy_type=2, ingress_network_policy_rule_action=1,
        egress_network_policy_type=3, egress_network_policy_rule_action=3, app_protocol_name="http",
        http_vals='{"0":{"url":"/é"}}', proxy_snat_ip=ips[2], proxy_snat_port=4001,
    )  # fmt: skip


@contextlib.contextmanager
def exporting(here: World, port: int, waiting: list[FlowRecord]) -> Any:
    def due(_: float, most: int) -> list[FlowRecord]:
        found, waiting[:] = waiting[:most], waiting[most:]
        return found

    address = CollectorAddress("127.0.0.1", port, "grpc")
    agent = Destination(Facts(), here.kube, address, Trust(), "n1", due)
    running = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        running.cancel()


@contextlib.asynccontextmanager
async def channel(here: World, server: ApiServer) -> AsyncIterator[Any]:
    """A client of grpcio with the certificate of agents."""
    pair = held(server, AGENTS)
    given = grpc.ssl_channel_credentials(
        held(server, AUTHORITY).certificate_pem.encode(), pair.key_pem.encode(), pair.certificate_pem.encode()
    )
    where = f"127.0.0.1:{here.aggregator.intake.ports['grpc']}"
    named = (("grpc.ssl_target_name_override", NAME),)
    async with grpc.aio.secure_channel(where, given, named) as found:
        yield found


@pytest.mark.parametrize("version6", [False, True])
async def test_every_field_of_an_agent_comes_out_at_the_aggregator(version6: bool, tmp_path: Path) -> None:
    async with world(tmp_path) as (here, _):
        sent = [whole(3000 + at, version6) for at in range(1200)]
        with exporting(here, here.aggregator.intake.ports["grpc"], list(sent)) as agent:
            await until(lambda: len(here.ports) == len(sent))
            assert (agent.trouble, agent.exported, here.aggregator.intake.received) == ("", 1200, 1200)
        taken = {one.source_transport_port: one for one in here.aggregator.flows.records()}
        names = [one for one in FlowRecord.__annotations__ if getattr(sent[0], one)]
        for one in sent:
            got = taken[one.source_transport_port]
            # what is exported is counted anew, which is aggregation's
            assert {name: getattr(got, name) for name in names if "delta" not in name} == {
                name: getattr(one, name) for name in names if "delta" not in name
            }
            assert got.original_exporter_ipv4 == "127.0.0.1"


async def test_a_new_authority_ends_calls_and_agents_come_back_by_themselves(tmp_path: Path) -> None:
    waiting = [record(3000)]
    async with world(tmp_path) as (here, server):
        with exporting(here, here.aggregator.intake.ports["grpc"], waiting) as agent:
            await until(lambda: here.ports == [3000])
            server.drop(AUTHORITY)
            await until(lambda: agent.connections == 2 and not agent.trouble)
            waiting.append(record(3001))
            await until(lambda: here.ports == [3000, 3001])


async def test_a_stranger_is_told_so_before_a_record_is_sent(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, server):
        tls = client_context(cadata=held(server, AUTHORITY).certificate_pem)
        with pytest.raises(Unavailable, match="over grpc: it ended the connection"):
            await GrpcSession(1).open("127.0.0.1", here.aggregator.intake.ports["grpc"], tls, NAME)
        stranger = self_signed(("agent",), ())
        load_pair(tls, stranger)
        with pytest.raises(Unavailable, match="over grpc: it ended the connection"):
            await GrpcSession(1).open("::1", here.aggregator.intake.ports["grpc"], tls, NAME)
        assert await asyncio.to_thread(here.rejected) == 2


async def test_a_client_of_grpcio_sends_records_and_gets_the_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, server), channel(here, server) as client:
        call = client.stream_unary(EXPORT)()
        for port in range(5000, 5300):
            message = ExportRequest()
            write(record(port), message.flows.add(), domain=7, now=1)
            await call.write(message.SerializeToString())
        await call.done_writing()
        assert ExportResponse.FromString(await call) == ExportResponse()
        await until(lambda: sorted(here.ports) == list(range(5000, 5300)))
        [one, *_] = here.aggregator.flows.records()
        assert one.original_observation_domain_id == 7


@pytest.mark.parametrize(
    ("path", "message", "statuses"),
    [
        ("/antrea_io.antrea.pkg.apis.flow.v1alpha1.FlowExportService/Import", b"", [grpc.StatusCode.UNIMPLEMENTED]),
        (EXPORT, b"\x0a\xff", [grpc.StatusCode.INVALID_ARGUMENT]),
        (EXPORT, bytes(2 << 20), [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL]),
    ],
)  # fmt: skip
async def test_what_is_no_record_ends_its_call_and_others_go_on(
    path: str, message: bytes, statuses: list[grpc.StatusCode], tmp_path: Path
) -> None:
    async with world(tmp_path) as (here, server), channel(here, server) as client:
        # one message is the same on the wire
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.unary_unary(path)(message)
        assert failed.value.code() in statuses
        with exporting(here, here.aggregator.intake.ports["grpc"], [record(6000)]):
            await until(lambda: here.ports == [6000])


async def test_octets_at_random_end_their_connection_and_leave_nothing(tmp_path: Path) -> None:
    chance = random.Random(22)
    async with world(tmp_path) as (here, server):
        tls = client_context(cadata=held(server, AUTHORITY).certificate_pem)
        load_pair(tls, held(server, AGENTS))
        port = here.aggregator.intake.ports["grpc"]
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for at in range(40):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=NAME)
            writer.write((preface if at % 2 else b"") + chance.randbytes(400))
            writer.write_eof() if writer.can_write_eof() else writer.close()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(30):
                    await reader.read()
            writer.close()
        await until(lambda: here.aggregator.intake.sessions == 0)
        assert here.aggregator.intake.refused >= 20
        with exporting(here, port, [record(6001)]):
            await until(lambda: here.ports == [6001])


def hostile_headers(http: H2Connection) -> None:
    path = [(b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/x"), (b":authority", b"x")]
    http.send_headers(1, [*path, (b"x", b"\xff\xfe")])


def reset_at_once(http: H2Connection) -> None:
    path = [(":method", "POST"), (":scheme", "https"), (":path", "/x"), (":authority", "x")]
    for stream in (1, 3, 5):
        http.send_headers(stream, path)
        http.reset_stream(stream)


def reset_a_call(http: H2Connection) -> None:
    path = [(":method", "POST"), (":scheme", "https"), (":path", EXPORT), (":authority", "x")]
    http.send_headers(1, [*path, ("content-type", "application/grpc")])
    http.send_data(1, b"\0" * 4)
    http.reset_stream(1)
    http.send_headers(3, [*path, ("content-type", "application/grpc")])
    http.send_data(3, b"\0" * 4, end_stream=True)


def end_with_calls(http: H2Connection) -> None:
    reset_at_once(http)
    http.close_connection()


@pytest.mark.parametrize("write_it", [hostile_headers, reset_at_once, reset_a_call, end_with_calls])
async def test_a_stranger_in_http2_writes_no_traceback_and_others_go_on(
    write_it: Callable[[H2Connection], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Header bytes that are no UTF-8, and streams that are closed early."""
    async with world(tmp_path) as (here, server):
        pair, port = held(server, AGENTS), here.aggregator.intake.ports["grpc"]
        trusted = ssl.create_default_context(cadata=held(server, AUTHORITY).certificate_pem)
        load_pair(trusted, pair)
        trusted.set_alpn_protocols(["h2"])
        faults = list[dict[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, found: faults.append(found))
        refused = here.aggregator.intake.refused
        for _ in range(3):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusted, server_hostname=NAME
            )
            http = H2Connection(H2Configuration(client_side=True, header_encoding=None))
            http.config.validate_outbound_headers = False
            http.initiate_connection()
            write_it(http)
            writer.write(http.data_to_send())
            await writer.drain()
            if write_it is hostile_headers:
                async with asyncio.timeout(20):
                    with contextlib.suppress(OSError):
                        await reader.read(-1)
            writer.close()
        await until(lambda: here.aggregator.intake.sessions == 0)
        gc.collect()
        assert faults == []
        assert "Traceback" not in caplog.text
        if write_it is hostile_headers:
            assert here.aggregator.intake.refused - refused == 3
        with exporting(here, port, [whole(3000, version6=False)]):
            await until(lambda: len(here.ports) == 1)


async def test_an_agent_sends_to_a_server_of_grpcio_as_it_takes_them() -> None:
    pair, got, paused = self_signed((NAME,), ()), list[FlowRecord](), asyncio.Event()

    async def export(requests: Any, _: Any) -> bytes:
        await paused.wait()
        async for message in requests:
            got.extend(read(flow) for flow in ExportRequest.FromString(message).flows)
        return bytes(ExportResponse().SerializeToString())

    service, _, method = EXPORT[1:].partition("/")
    # else the server makes the window larger, by how fast it gets what it does not read
    server = grpc.aio.server(options=[("grpc.http2.bdp_probe", 0)])
    handlers = {method: grpc.stream_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    given = grpc.ssl_server_credentials([(pair.key_pem.encode(), pair.certificate_pem.encode())])
    port = server.add_secure_port("127.0.0.1:0", given)
    await server.start()
    session = GrpcSession(1)
    await session.open("127.0.0.1", port, client_context(cadata=pair.certificate_pem), NAME)
    sent = [whole(port, False) for port in range(200)] * 100
    sending = asyncio.create_task(session.export(sent))
    done, _ = await asyncio.wait([sending], timeout=0.5)
    assert not done  # there is no room for more than a window until it reads
    paused.set()
    assert await sending == len(sent)
    await until(lambda: len(got) == len(sent))
    await session.close()
    assert [msgspec.structs.replace(one, original_observation_domain_id=0) for one in got] == sent
    await server.stop(None)


async def test_a_server_that_ends_the_call_is_quoted() -> None:
    pair = self_signed((NAME,), ())

    async def export(_: Any, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room, 100 %")
        return b""

    service, _, method = EXPORT[1:].partition("/")
    server = grpc.aio.server()
    handlers = {method: grpc.stream_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    given = grpc.ssl_server_credentials([(pair.key_pem.encode(), pair.certificate_pem.encode())])
    port = server.add_secure_port("127.0.0.1:0", given)
    await server.start()
    session = GrpcSession(1)
    await session.open("127.0.0.1", port, client_context(cadata=pair.certificate_pem), NAME)

    def ended() -> bool:
        try:
            session.expect_open()
        except Unavailable as error:
            return str(error) == "flow collector: it ended the call: gRPC status 8, no room, 100 %"
        return False

    await until(ended)
    await session.close()
    await server.stop(None)
