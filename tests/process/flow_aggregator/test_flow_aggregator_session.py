"""Sessions with a collector over real sockets: one that goes away and comes back, and certificates that do not fit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from certificates import SERVER, made
from free_port import free_port

from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import FlowAggregatorConfig, FlowCollector, FlowCollectorTls
from antrea.config.shape import Collector as CollectorAddress
from antrea.engine import Facts
from antrea.errors import Invalid, Unavailable
from antrea.features.flow_export.agent_part import destination
from antrea.features.flow_export.agent_part.destination import Destination
from antrea.features.flow_export.settings import Trust
from antrea.flow_aggregator import destination as outputs
from antrea.flow_aggregator.certificates import mutual_tls
from antrea.flow_aggregator.configuration import accept
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import MessageWriter
from antrea.ipfix.template import Contents, aggregated_elements
from antrea.outside.ipfix import collector as ipfix_collector
from antrea.outside.ipfix.collector import Collector
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import Certificate, self_signed, server_tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

NAME = "flow-aggregator.flow-aggregator.svc"


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 (records come from the network)
            await asyncio.sleep(0.01)


async def test_a_collector_that_went_away_is_named_at_once_and_gets_what_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for pause in ("TICK", "FIRST_PAUSE", "MAX_PAUSE"):
        monkeypatch.setattr(destination, pause, 0.01)
    got: list[FlowRecord] = []
    waiting: list[FlowRecord] = []

    def due(_: float, most: int) -> list[FlowRecord]:
        found, waiting[:] = waiting[:most], waiting[most:]
        return found

    collector, ports = Collector(got.append), asyncio.Queue[int]()
    # nobody else's while nobody listens
    port = free_port()
    serving = asyncio.create_task(collector.serve("127.0.0.1", port, "tcp", ports.put_nowait))
    await ports.get()
    # Kubernetes is asked for certificates alone, which TCP has none of
    one = Destination(
        Facts(), cast("Any", None), CollectorAddress("127.0.0.1", port, "tcp"), Trust(), "n1", due
    )
    running = asyncio.create_task(one.run())
    await until(lambda: not one.trouble and collector.sessions == 1)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await until(lambda: one.trouble)
    waiting += [FlowRecord(source_ip="10.10.0.8", source_transport_port=port) for port in range(1000)]
    again = Collector(got.append)
    serving = asyncio.create_task(again.serve("127.0.0.1", port, "tcp", ports.put_nowait))
    await until(lambda: len(got) >= 1000)
    assert [record.source_transport_port for record in got] == list(range(1000))
    assert (one.trouble, one.connections) == ("", 2)
    for task in (running, serving):
        task.cancel()
    await asyncio.gather(running, serving, return_exceptions=True)


async def test_a_session_that_does_not_end_its_message_in_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipfix_collector, "REST_OF_MESSAGE", 0.2)
    collector, ports = Collector(lambda _: None), asyncio.Queue[int]()
    serving = asyncio.create_task(collector.serve("127.0.0.1", 0, "tcp", ports.put_nowait))
    reader, writer = await asyncio.open_connection("127.0.0.1", await ports.get())
    writer.write(MessageWriter(1).templates(0)[0][:-1])
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    await until(lambda: collector.sessions == 0)
    writer.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_records_go_to_nobody_whose_certificate_is_not_that_of_the_collector(host: str) -> None:
    pair, other = self_signed((NAME,), ()), self_signed((NAME,), ())
    got = asyncio.Queue[bytes]()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.put_nowait(await reader.read(2))
        writer.close()

    server = await asyncio.start_server(take, host, 0, ssl=server_tls(pair))
    port = server.sockets[0].getsockname()[1]
    for authority, name in ((other, NAME), (pair, "elsewhere.svc")):
        session = CollectorSession(MessageWriter(1))
        with pytest.raises(Unavailable, match=f"{port} over tls: .*certificate"):
            await session.open(host, port, "tls", client_context(cadata=authority.certificate_pem), name)
    session = CollectorSession(MessageWriter(1))
    await session.open(host, port, "tls", client_context(cadata=pair.certificate_pem), NAME)
    async with asyncio.timeout(60):
        assert await got.get() == b"\x00\x0a"
    assert got.empty()
    await session.close()
    server.close()


def authority_of(folder: Path, name: str) -> ssl.SSLContext:
    """TLS of a collector that takes clients of an authority; its files are put where the aggregator reads them."""
    authority = made(name, ca=True)
    server, client = made("c", authority, usage=SERVER, names=("collector",)), made("aggregator", authority)
    fresh = {"ca.crt": authority.pem, "tls.crt": client.pem, "tls.key": client.key_pem}
    for file, text in fresh.items():
        (folder / file).write_text(text)
    return mutual_tls(Certificate(server.pem, server.key_pem), authority.pem)


async def test_an_aggregator_and_its_collector_know_each_other_also_by_certificates_that_are_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "COLLECTOR_FILES", tmp_path / "now")
    for pause in ("FIRST_PAUSE", "MAX_PAUSE"):
        monkeypatch.setattr(outputs, pause, 0.05)
    for name in ("now", "next"):
        (tmp_path / name).mkdir()
    got: list[FlowRecord] = []
    collector, ports = Collector(got.append), asyncio.Queue[int]()
    collector.tls, later = authority_of(tmp_path / "now", "a"), authority_of(tmp_path / "next", "b")
    serving = asyncio.create_task(collector.serve("127.0.0.1", 0, "tls", ports.put_nowait))
    tls = FlowCollectorTls(
        enable=True, server_name="collector", ca_secret_name="a", client_secret_name="b", min_version="VersionTLS13"
    )  # fmt: skip
    config = FlowCollector(enable=True, address=f"127.0.0.1:{await ports.get()}", tls=tls)
    to = outputs.Destination(
        "flowCollector", outputs.IpfixOutput(config, "", proxied=False, requests=False), 100
    )
    working = asyncio.create_task(to.run())
    to.offer(FlowRecord(source_ip="10.0.0.1", source_transport_port=1))
    await until(lambda: len(got) == 1)
    collector.tls = later
    await collector.end_sessions()
    await asyncio.sleep(0.1)
    to.offer(FlowRecord(source_ip="10.0.0.1", source_transport_port=2))
    await until(lambda: "certificate verify failed" in to.trouble)
    (tmp_path / "now" / "tls.key").unlink()
    await until(lambda: "flowCollector.tls.clientSecretName" in to.trouble)
    for file in (tmp_path / "next").iterdir():
        file.rename(tmp_path / "now" / file.name)
    await until(lambda: len(got) == 2)
    assert ([one.source_transport_port for one in got], to.trouble, to.dropped) == ([1, 2], "", 0)
    for task in (working, serving):
        task.cancel()
    await asyncio.gather(working, serving, return_exceptions=True)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
async def test_a_collector_gets_lines_of_json_if_it_is_asked_for(protocol: str) -> None:
    """As go-ipfix writes them: an object for each record, with the time and the elements by their names."""
    lines = asyncio.Queue[bytes]()

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, _: Any) -> None:
            lines.put_nowait(data)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            lines.put_nowait(line)
        writer.close()

    if protocol == "udp":
        loop = asyncio.get_running_loop()
        server: Any = (await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0)))[0]
        port = server.get_extra_info("sockname")[1]
    else:
        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
    config = FlowCollector(enable=True, address=f"127.0.0.1:{port}:{protocol}", record_format="JSON")
    output = outputs.IpfixOutput(config, "c1", proxied=False, requests=False)
    sent = FlowRecord(source_ip="10.0.0.1", source_pod_name="a<\n", octet_total_count=2**63, cluster_id="c1")
    await output.write([sent, FlowRecord(source_ip="fd00::1"), FlowRecord(source_pod_labels="x" * 70_000)])
    async with asyncio.timeout(60):
        first, second = [json.loads(await lines.get()) for _ in range(2)]
    assert datetime.now(UTC) - datetime.fromisoformat(first["@timestamp"]) < timedelta(minutes=1)
    names = {one.name for one in aggregated_elements(ipv6=False, contents=Contents(direction=True))}
    assert first["ipfix"].keys() == names
    shown = {name: first["ipfix"][name] for name in ("sourceIPv4Address", "sourcePodName", "octetTotalCount", "destinationClusterIPv4")}  # fmt: skip
    assert shown == {
        "sourceIPv4Address": "10.0.0.1", "sourcePodName": "a<\n", "octetTotalCount": 2**63, "destinationClusterIPv4": "0.0.0.0",
    }  # fmt: skip
    assert (second["ipfix"]["sourceIPv6Address"], second["ipfix"]["proxySnatIPv6"]) == ("fd00::1", "::")
    await output.close()
    assert lines.empty()
    server.close()


async def test_messages_are_as_long_as_the_collector_takes_them() -> None:
    got = asyncio.Queue[bytes]()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(4)
                got.put_nowait(head + await reader.readexactly(int.from_bytes(head[2:]) - 4))
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = FlowCollector(enable=True, address=address, max_ipfix_msg_size=1500)
        output = outputs.IpfixOutput(config, "c1", proxied=False, requests=False)
        await output.write([FlowRecord(source_ip="10.0.0.1")] * 100)
        decoder, read, longest = Decoder(), 0, 0
        async with asyncio.timeout(60):
            while read < 100:
                message = await got.get()
                read, longest = read + len(decoder.read(message)[1]), max(longest, len(message))
        await output.close()
    assert 1000 < longest <= 1500
    with pytest.raises(Invalid, match=r"flowCollector\.maxIPFIXMsgSize: must be 0, or from 512"):
        accept(
            FlowAggregatorConfig(
                flow_collector=FlowCollector(enable=True, address="a:1", max_ipfix_msg_size=511)
            )
        )


def test_tls_over_datagrams_is_refused() -> None:
    config = FlowCollector(enable=True, address="127.0.0.1:4739:udp", tls=FlowCollectorTls(enable=True))
    with pytest.raises(Invalid, match=r"flowCollector\.tls\.enable: is for tcp"):
        accept(FlowAggregatorConfig(flow_collector=config))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(("template_seconds", "read"), [(0.0, 1), (600.0, 0)])
async def test_a_collector_that_starts_later_reads_datagrams_after_the_next_templates(
    host: str, template_seconds: float, read: int
) -> None:
    record = FlowRecord(
        source_ip=host.replace("::1", "fd00::1"), destination_ip=host.replace("::1", "fd00::2")
    )
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind((host, 0))
        bound.settimeout(60)
        session = CollectorSession(MessageWriter(1), template_seconds=template_seconds)
        await session.open(host, bound.getsockname()[1], "udp")
        first = Decoder()
        templates = len(MessageWriter(1).templates(0))
        for _ in range(templates):
            first.read(await asyncio.to_thread(bound.recv, 65535))
        assert await session.export([record]) == 1
        later, got = Decoder(), []
        for _ in range((templates if read else 0) + 1):
            message = await asyncio.to_thread(bound.recv, 65535)
            got += later.read(message)[1]
        assert [one.source_ip for one in got] == [record.source_ip] * read
        assert [one.source_ip for one in first.read(message)[1]] == [record.source_ip]
        await session.close()


async def test_datagrams_of_one_source_do_not_end_the_templates_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ipfix_collector, "MAX_SENDERS", 64)
    got: list[FlowRecord] = []
    collector, ports = Collector(got.append), asyncio.Queue[int]()
    serving = asyncio.create_task(collector.serve("127.0.0.1", 0, "udp", ports.put_nowait))
    port = await ports.get()
    writer = MessageWriter(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.2", 0))
        agent.connect(("127.0.0.1", port))
        for message in writer.templates(0):
            agent.send(message)
        for number in range(200):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(b"no IPFIX", ("127.0.0.1", port))
            await until(lambda number=number: collector.refused > number)  # type: ignore[misc]
        for message, _ in writer.data([FlowRecord(source_ip="10.0.0.1", source_transport_port=7)], 0, 1400):
            agent.send(message)
        await until(lambda: got)
    assert [one.source_transport_port for one in got] == [7]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


EMPTY = struct.pack("!HHIII", 10, 16, 0, 0, 1)
"""An IPFIX message without records."""


@pytest.mark.parametrize(
    ("sent", "reset", "counted"),
    [(EMPTY, False, 0), (EMPTY[:3], False, 1), (EMPTY, True, 1)],
    ids=["end", "end within a message", "reset"],
)
async def test_a_session_that_is_interrupted_is_counted(sent: bytes, reset: bool, counted: int) -> None:
    collector, ports = Collector(lambda _: None), asyncio.Queue[int]()
    serving = asyncio.create_task(collector.serve("127.0.0.1", 0, "tcp", ports.put_nowait))
    with socket.create_connection(("127.0.0.1", await ports.get())) as client:
        client.sendall(sent)
        await until(lambda: collector.sessions == 1)
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await until(lambda: collector.sessions == 0)
    assert (collector.interrupted, collector.refused) == (counted, 0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
