"""What engines, exporters, kernels and DNS servers send is read or refused: EVE, IPFIX, protobuf, HTTP/2, nfnetlink, listings of nft, pcapng, DNS over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from typing import TYPE_CHECKING, Any

import dns.message
import dns.rrset
import pytest
from fuzzing import STRINGS, anything, spoilt, text
from google.protobuf.message import DecodeError
from h2.config import H2Configuration
from h2.connection import H2Connection

from antrea.antctl.doctor.checks import drops
from antrea.antctl.doctor.invalid_packets import invalid_packets
from antrea.antctl.doctor.state import Chain, NodeState
from antrea.antctl.kube_proxy.ruleset import commands, is_complete, leftover
from antrea.apis.flow import FlowRecord
from antrea.errors import AntreaError, Invalid
from antrea.features.flow_export.l7_event import parsed
from antrea.features.network_policy.agent.dns_answer import dns_answer
from antrea.features.network_policy.agent.dns_stream import MAX_BYTES, MAX_STREAMS, DnsStreams
from antrea.features.packet_capture.agent_part import pcapng
from antrea.flow_protobuf.record import read, write
from antrea.flow_protobuf.schema import EXPORT, ExportRequest
from antrea.host.invalid_drop import CONDITION
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import MessageWriter
from antrea.openflow.packet import TCP, Packet
from antrea.outside.grpc.framing import framed
from antrea.outside.grpc.server import Call, ServerConnection
from antrea.outside.listener.listening_socket import listen
from antrea.outside.nftables import nfnetlink
from antrea.outside.nftables import text as nft_text
from antrea.outside.nftables.listing import lead_rows, statements
from antrea.outside.nftables.packet_log import _packets
from antrea.outside.session.server import SessionServer

if TYPE_CHECKING:
    from random import Random

    from fuzzing import Fuzz

    from antrea.outside.session.server import Session

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
NOW = 1_767_225_600
EVENTS = (
    {"event_type": "http", "src_ip": "10.0.0.1", "src_port": 40000, "dest_ip": "10.0.0.2", "dest_port": 80, "proto": "TCP", "tx_id": 0,
     "http": {"hostname": "web", "url": "/", "http_method": "GET", "protocol": "HTTP/1.1", "status": 200, "length": 3}},
    {"event_type": "tls", "src_ip": "fd00::1", "src_port": 40000, "dest_ip": "fd00::2", "dest_port": 443, "proto": "TCP", "tx_id": 1,
     "tls": {"sni": "a.test", "version": "TLS 1.3", "subject": "CN=a"}},
    {"event_type": "dns", "src_ip": "10.0.0.1", "src_port": 40000, "dest_ip": "10.0.0.2", "dest_port": 53, "proto": "UDP", "tx_id": 2,
     "dns": {"type": "answer", "rrname": "a.test", "rrtype": "A", "rcode": "NOERROR", "answers": [{"rrname": "a.test", "rdata": "192.0.2.1"}]}},
)  # fmt: skip


def changed_object(rnd: Random, found: Any) -> Any:
    """With some of its parts of any shape, deep ones too."""
    if isinstance(found, dict):
        changed = {
            key: changed_object(rnd, one) if rnd.random() < 0.8 else anything(rnd)
            for key, one in found.items()
        }
        return changed | ({text(rnd): anything(rnd)} if rnd.random() < 0.2 else {})
    return (
        found if rnd.random() < 0.9 else rnd.choice((anything(rnd), rnd.choice(STRINGS), "\udfff", 2**70, -1))
    )


def line_of(rnd: Random) -> bytes:
    line = json.dumps(changed_object(rnd, rnd.choice(EVENTS))).encode()
    way = rnd.randrange(8)
    if way == 0:
        line = line.replace(
            b'"tx_id"', b'"x":' + rnd.choice((b"[", b'{"a":')) * rnd.randrange(5000) + b',"tx_id"'
        )
    return spoilt(rnd, line) if way < 4 else line


def test_wide_fuzz_records_of_the_l7_engine(fuzz: Fuzz) -> None:
    found = refused = 0
    for rnd in fuzz:
        try:
            seen = parsed(line_of(rnd))
        except (ValueError, Invalid):
            refused += 1
        else:
            found += seen is not None
            assert seen is None or len(seen.text.encode()) < 1 << 16
    print(f"{found} read, {refused} refused")
    assert min(found, refused) > 0


def record(rnd: Random, *, v6: bool) -> FlowRecord:
    ends = ("fd00::1", "fd00::2") if v6 else ("10.0.0.1", "10.0.0.2")
    return FlowRecord(
        flow_start_seconds=NOW, flow_end_seconds=NOW + 1, source_ip=ends[0], destination_ip=ends[1],
        source_transport_port=40000, destination_transport_port=rnd.randrange(1 << 16), protocol_identifier=6,
        source_pod_name="client", source_pod_namespace="shop", tcp_state="ESTABLISHED",
    )  # fmt: skip


def test_wide_fuzz_records_ipfix(fuzz: Fuzz) -> None:
    found = refused = 0
    for rnd in fuzz:
        writer, decoder = MessageWriter(1, aggregated=rnd.random() < 0.5), Decoder()
        data = [one for one, _ in writer.data([record(rnd, v6=v6) for v6 in (False, True)], NOW, 65535)]
        for message in (*writer.templates(NOW), *data, *data):
            octets = message if rnd.random() < 0.5 else spoilt(rnd, message)
            if (
                rnd.random() < 0.7 and len(octets) >= 4
            ):  # with a length that is true, so that more of it is read
                octets = octets[:2] + min(len(octets), 0xFFFF).to_bytes(2) + octets[4:]
            try:
                _, records = decoder.read(octets)
                found += len(records)
            except Invalid:
                refused += 1
    print(f"{found} records read, {refused} messages refused")
    assert min(found, refused) > 0


def export_request(rnd: Random) -> bytes:
    request = ExportRequest()
    for v6 in (False, True):
        write(record(rnd, v6=v6), request.flows.add(), domain=1, now=NOW)
    return bytes(request.SerializeToString())


def test_wide_fuzz_records_protobuf(fuzz: Fuzz) -> None:
    found = refused = 0
    for rnd in fuzz:
        try:
            request = ExportRequest.FromString(spoilt(rnd, export_request(rnd)))
        except DecodeError:
            refused += 1
            continue
        for flow in request.flows:
            flow_record = read(flow)
            assert 0 <= flow_record.source_transport_port < 1 << 16
            found += 1
    print(f"{found} records read, {refused} messages refused")
    assert min(found, refused) > 0


def client_octets(rnd: Random) -> bytes:
    """What a client of the collector sends, part by part."""
    http = H2Connection(
        H2Configuration(client_side=True, validate_outbound_headers=False, header_encoding=None)
    )
    http.initiate_connection()
    parts = [http.data_to_send()]
    for stream in (1, 3):
        headers = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"x"), (b":path", EXPORT.encode()),
                   (b"content-type", b"application/grpc"), (b"te", b"trailers")]  # fmt: skip
        if rnd.random() < 0.3:
            headers.append(
                (rnd.choice((b"x", b"authorization", b"grpc-timeout")), rnd.randbytes(rnd.randrange(9)))
            )
        http.send_headers(stream, headers)
        http.send_data(stream, framed(export_request(rnd)), end_stream=rnd.random() < 0.5)
        if rnd.random() < 0.2:
            http.reset_stream(stream)
        parts.append(http.data_to_send())
    return b"".join(spoilt(rnd, one) if rnd.random() < 0.4 else one for one in parts)


class Server(SessionServer):
    """Counts the messages that it takes of its clients."""

    def __init__(self) -> None:
        super().__init__("strangers")
        self.taken = 0

    async def serve_session(self, session: Session) -> None:
        await ServerConnection(session, {EXPORT: self._take}).run()

    async def _take(self, call: Call) -> None:
        while await call.receive() is not None:
            self.taken += 1


async def served(server: Server, octets: bytes, cuts: list[int]) -> None:
    """A connection from its begin to its end."""
    listening = listen(0, "127.0.0.1")
    running = asyncio.create_task(server.serve_at(listening))
    theirs = socket.create_connection(listening.getsockname())
    try:
        await asyncio.to_thread(_sent, theirs, octets, cuts)
        async with asyncio.timeout(60):
            await asyncio.to_thread(_read_to_the_end, theirs)
    finally:
        theirs.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _read_to_the_end(theirs: socket.socket) -> None:
    theirs.settimeout(50)
    with contextlib.suppress(ConnectionError):
        while theirs.recv(65536):
            pass


def _sent(theirs: socket.socket, octets: bytes, cuts: list[int]) -> None:
    try:
        for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
            theirs.sendall(octets[begin:end])
        theirs.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_wide_fuzz_records_http2_server(fuzz: Fuzz) -> None:
    """No connection ends in anything but an error of ours; and no task of one leaves an exception behind."""
    server, strange = Server(), list[str]()

    async def run(rnd: Random) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, what: strange.append(repr(what.get("exception") or what["message"]))
        )
        octets = client_octets(rnd)
        cuts = sorted(rnd.randrange(len(octets) + 1) for _ in range(rnd.randrange(4)))
        await served(server, octets, cuts)

    for rnd in fuzz:
        asyncio.run(run(rnd))
        assert not strange, (fuzz.seed, strange)
    print(f"{server.taken} messages taken, {server.refused} connections refused")
    assert min(server.taken, server.refused) > 0


def test_wide_fuzz_records_nfnetlink(fuzz: Fuzz) -> None:
    """What the kernel hands over, packets of strangers in it."""
    kind = 4 << 8
    head = struct.pack("=BBH", 2, 0, socket.htons(10350))
    body = (
        head
        + nfnetlink.attribute(1, bytes(8))
        + nfnetlink.attribute(9, b"E" * 40)
        + nfnetlink.attribute(10, b"np-p-0\0")
    )
    whole = struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body
    found = 0
    for rnd in fuzz:
        octets = spoilt(rnd, whole * rnd.randrange(1, 4))
        rows = list(nfnetlink.messages(octets, kind))
        assert sum(len(one) for row in rows for one in row.values()) <= len(octets) ** 2
        found += len(rows)
        list(_packets(octets))
        for read_answer in (nfnetlink.dumped, nfnetlink.acknowledge):
            try:
                read_answer(octets, "it")
            except AntreaError:
                continue
    assert found


LISTING = (
    'table inet antrea {\n\tcounter np-p-0 {\n\t\tcomment "2"\n\t\tpackets 1 bytes 60\n\t}\n\tset np-fqdn-4 {\n\t\ttype ipv4_addr\n\t\tcomment "2"\n'
    "\t\tflags interval\n\t\telements = { 10.0.0.1, 10.0.0.2 }\n\t}\n\tchain node-dns {\n\t\ttype filter hook input priority filter - 10; policy accept;\n"
    '\t\tudp dport 53 accept comment "x 2 7"\n\t}\n}\n'
)


def test_wide_fuzz_records_nft_text(fuzz: Fuzz) -> None:
    """A name of a set may be a tenant's digest, and another program may have changed the table: the text is read as far as it is ours."""
    found = 0
    for rnd in fuzz:
        found += len(list(nft_text.parse(spoilt(rnd, LISTING.encode()).decode(errors="replace"))))
    print(f"{found} entries read")
    assert found


JSON_PLACE = {"family": "ip", "table": "filter"}
JSON_ROWS: tuple[dict[str, Any], ...] = (
    {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
    {"table": {"family": "ip6", "name": "kube-proxy", "handle": 1}},
    *({"chain": {**JSON_PLACE, "name": name, "handle": 2}} for name in ("KUBE-FORWARD", "KUBE-POSTROUTING", "FORWARD")),
    {"rule": {**JSON_PLACE, "chain": "FORWARD", "handle": 3, "expr": [{"counter": {"packets": 1, "bytes": 60}}, {"jump": {"target": "KUBE-FORWARD"}}]}},
    {"rule": {**JSON_PLACE, "chain": "KUBE-FORWARD", "handle": 4, "expr": [
        {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["invalid"]}}, {"xt": {"type": "match", "name": "conntrack"}}, {"drop": None}]}},
    {"rule": {**JSON_PLACE, "chain": "FORWARD", "handle": 5, "expr": [
        {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "antrea-gw0"}}, {"accept": None}]}},
    {"set": {**JSON_PLACE, "name": "mine", "type": "ipv4_addr", "elem": ["10.0.0.1", {"range": ["10.0.0.2", "10.0.0.3"]}]}},
)  # fmt: skip


def json_listing(rnd: Random) -> str:
    rows = [changed_object(rnd, one) if rnd.random() < 0.2 else one for one in JSON_ROWS]
    octets = json.dumps({"nftables": rnd.sample(rows, len(rows))}).encode()
    if rnd.random() < 0.1:
        octets = octets.replace(b"null", rnd.choice((b"[", b'{"a":')) * rnd.randrange(5000), 1)
    return (spoilt(rnd, octets) if rnd.random() < 0.3 else octets).decode(errors="replace")


def test_wide_fuzz_records_nft_json(fuzz: Fuzz) -> None:
    """The packet filter of a Node has rules of any program: kube-proxy's part of it and the doctor's findings are read, or refused."""
    found = refused = 0
    for rnd in fuzz:
        listed = json_listing(rnd)
        try:
            left, complete = leftover(lead_rows(listed)), is_complete(lead_rows(listed), frozenset(("ip",)))
            rules = tuple(statements(listed))
        except Invalid:
            refused += 1
            continue
        script = commands(left)
        assert script or not complete
        found += len(rules)
        for table, name in (("filter", "FORWARD"), ("filter", "KUBE-FORWARD")):
            chain = Chain("ip", table, name, "forward", rnd.choice(("accept", "drop")), rules)
            assert drops(chain, "antrea-gw0") in ("", "error", "warning")
            assert len(list(invalid_packets(NodeState(conditions={CONDITION: "x"}, chains=(chain,))))) == 1
    print(f"{found} rules read, {refused} listings refused")
    assert min(found, refused) > 0


def blocks(file: bytes) -> list[tuple[int, bytes]]:
    """Kind and body of each block, as another program reads a file."""
    found, at = [], 0
    while at < len(file):
        kind, size = struct.unpack_from("=II", file, at)
        assert size >= 12
        assert size % 4 == 0
        assert struct.unpack_from("=I", file, at + size - 4) == (size,)
        found.append((kind, file[at + 8 : at + size - 4]))
        at += size
    assert at == len(file)
    return found


def test_wide_fuzz_records_pcapng(fuzz: Fuzz) -> None:
    """A file can be read whatever packets, names and reasons are in it."""
    for rnd in fuzz:
        data, reason = rnd.randbytes(rnd.randrange(200)), text(rnd) * rnd.choice((1, 1, 1, 400))
        length, moment = rnd.choice((len(data), 65535, 2**32 - 1)), rnd.randrange(2**63)
        file = (
            pcapng.header(text(rnd), 65535, text(rnd))
            + pcapng.packet(moment, data, length, rnd.choice((1, 2)))
            + pcapng.drops(65535)
            + pcapng.dropped(moment, data, length, reason)
            + pcapng.statistics(moment, rnd.randrange(2**63), rnd.randrange(2**63))
        )
        found = blocks(file)
        assert [kind for kind, _ in found] == [0x0A0D0D0A, 1, 6, 1, 6, 5]
        assert found[2][1][20 : 20 + len(data)] == data


def dns_messages(rnd: Random) -> list[bytes]:
    made = []
    for _ in range(rnd.randrange(1, 4)):
        said = dns.message.make_response(dns.message.make_query("www.example.", "A", use_edns=True))
        said.answer.append(dns.rrset.from_text("www.example.", 9, "IN", "CNAME", "a.test."))
        said.answer.append(dns.rrset.from_text("a.test.", 9, "IN", "A", "192.0.2.1", "192.0.2.2"))
        made.append(said.to_wire())
    return made


def test_wide_fuzz_records_dns_over_tcp(fuzz: Fuzz) -> None:
    found = refused = 0
    streams = DnsStreams()
    for rnd in fuzz:
        whole = b"".join(len(one).to_bytes(2) + one for one in dns_messages(rnd))
        octets = spoilt(rnd, whole) if rnd.random() < 0.7 else whole
        client, port, start = f"10.0.0.{rnd.randrange(9)}", rnd.randrange(1 << 16), rnd.randrange(1 << 32)
        cuts = sorted(rnd.randrange(len(octets) + 1) for _ in range(rnd.randrange(4)))
        pieces = list(zip([0, *cuts], [*cuts, len(octets)], strict=True))
        for begin, end in pieces + rnd.sample(pieces, rnd.randrange(len(pieces) + 1)):
            sequence = ((start + begin) & 0xFFFFFFFF) if rnd.random() < 0.95 else rnd.randrange(1 << 32)
            head = struct.pack(
                "!HHIIBBHHH", 53, port, sequence, 0, rnd.choice((0x50, 0x50, 0x50, 0xF0, 0)), 0x18, 0, 0, 0
            )
            segment = Packet(
                b"", b"", False, "192.0.2.53", client, TCP, 0, b"", head + octets[begin:end], True
            )
            try:
                for message in streams.messages(segment):
                    found += dns_answer(message) is not None
            except Invalid:
                refused += 1
        assert len(streams) <= MAX_STREAMS
    assert all(len(one.data) <= MAX_BYTES for one in streams._streams.values())
    print(f"{found} answers read, {refused} segments refused")
    assert min(found, refused) > 0
