"""What is read of an agent's message: within bounds, and texts that records share are one."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from antrea.apis.flow import MAX_TEXT, NANOS, FlowRecord
from antrea.flow_protobuf.record import MAX_SHARED, read, write
from antrea.flow_protobuf.schema import ExportRequest, Flow

SENT = FlowRecord(
    flow_start_seconds=100, flow_start_nanos=5, flow_end_seconds=110, flow_end_nanos=999_999_999, source_ip="10.1.0.5", destination_ip="fd00::7", tcp_state="ESTABLISHED",
    source_pod_name="web", source_pod_namespace="shop", octet_total_count=2**40, egress_ip="192.0.2.1",
    app_protocol_name="http", http_vals='{"0":{"url":"/"}}', proxy_snat_ip="10.0.0.1", proxy_snat_port=4001,
)  # fmt: skip
TRIES = 20_000


def message_of(record: FlowRecord) -> bytes:
    flow = Flow()
    write(record, flow, domain=7, now=110)
    return bytes(flow.SerializeToString())


def read_again(record: FlowRecord) -> FlowRecord:
    return read(Flow.FromString(message_of(record)))


def test_records_share_their_texts_and_long_ones_of_a_sender_are_not_kept() -> None:
    one, other = read_again(SENT), read_again(SENT)
    assert one.source_pod_name is other.source_pod_name
    assert one.source_ip is other.source_ip
    long = FlowRecord(source_pod_name="n" * (MAX_SHARED + 1))
    assert read_again(long).source_pod_name is not read_again(long).source_pod_name


def test_times_keep_what_is_less_than_a_second() -> None:
    found = read_again(SENT)
    assert (found.flow_start_nanos, found.flow_end_nanos) == (SENT.flow_start_nanos, SENT.flow_end_nanos)


def test_a_direction_that_is_unknown_is_the_only_one_that_is_written() -> None:
    """A message whose source has opened the connection has the octets of upstream's."""
    known = msgspec.structs.replace(SENT, biflow_direction=1)
    unknown = msgspec.structs.replace(SENT, biflow_direction=0)
    assert [read_again(one).biflow_direction for one in (known, unknown)] == [1, 0]
    assert message_of(unknown)[: len(message_of(known))] == message_of(known)
    assert len(message_of(unknown)) == len(message_of(known)) + 3


def test_a_message_that_is_spoilt_is_refused_or_read_within_bounds() -> None:
    """Octets of a good request are changed, cut off, repeated and put in at random."""
    chance = random.Random(20261127)
    good = [
        ExportRequest(flows=[flow] * 2).SerializeToString()
        for flow in (Flow.FromString(message_of(SENT)), extreme())
    ]
    read_ones = refused = 0
    for _ in range(TRIES):
        try:
            request = ExportRequest.FromString(spoilt(chance.choice(good), chance))
        except DecodeError:
            refused += 1
            continue
        for flow in request.flows:
            check(read(flow))
            read_ones += 1
    assert read_ones > TRIES // 4
    assert refused > TRIES // 4


def extreme() -> Any:
    """With values that no field of a record takes."""
    flow = Flow(end_reason=-1, proxy_snat_port=2**32 - 1, proxy_snat_ip=b"12345")
    flow.start_ts.seconds, flow.end_ts.seconds = -(2**63), 2**63 - 1
    flow.start_ts.nanos, flow.end_ts.nanos = -(2**31), 2**31 - 1
    flow.transport.source_port = flow.transport.destination_port = flow.transport.protocol_number = 2**32 - 1
    flow.transport.TCP.state_name = flow.k8s.source_pod_name = flow.app.protocol_name = "é" * 2000
    flow.k8s.flow_type, flow.k8s.ingress_network_policy_rule_action = -(2**31), 2**31 - 1
    flow.stats.octet_total_count = 2**64 - 1
    flow.app.http_vals = b"\xff" * 5000
    flow.ip.source = bytes(17)
    return flow


def spoilt(good: bytes, chance: random.Random) -> bytes:
    octets = bytearray(good)
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(octets) + 1)
        match chance.randrange(4):
            case 0:
                octets[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del octets[at : at + chance.randint(1, 40)]
            case 2:
                octets[at:at] = chance.randbytes(chance.randint(1, 40))
            case _:
                octets[at:at] = octets[at : at + chance.randint(1, 200)]
    return bytes(octets)


def check(record: FlowRecord) -> None:
    for name, kind in FlowRecord.__annotations__.items():
        value = getattr(record, name)
        if kind == "int":
            assert 0 <= value < 2**64, name
        else:
            assert len(value) <= (4096 if name == "http_vals" else MAX_TEXT), name
    assert record.source_transport_port <= 0xFFFF
    assert record.protocol_identifier <= 0xFF
    assert record.flow_start_nanos < NANOS
    assert record.flow_end_nanos < NANOS
