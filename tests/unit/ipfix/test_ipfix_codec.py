"""Messages of ours are those of go-ipfix v0.17.0, byte for byte; what it sends is read; what is malformed is refused.

goipfix_*.hex: a template and a record that go-ipfix's exporting process sent over TCP, with domain 12345; without labels of Pods.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from antrea.apis.flow import MAX_TEXT, FlowRecord
from antrea.errors import Invalid
from antrea.ipfix.decode import MAX_SESSION_FIELDS, MAX_TEMPLATES, Decoder
from antrea.ipfix.element import ELEMENTS
from antrea.ipfix.message import HEADER, MessageWriter, domain_of
from antrea.ipfix.record_reader import MAX_PART
from antrea.ipfix.template import Contents, agent_elements, aggregated_elements

HERE = Path(__file__).parent
ORDERS = {"agent": agent_elements, "aggregated": aggregated_elements}


def recorded(name: str) -> list[bytes]:
    octets = bytes.fromhex("".join((HERE / f"goipfix_{name}.hex").read_text().split()))
    length = int.from_bytes(octets[2:4])
    return [octets[:length], octets[length:]]


def sample(order: str, *, ipv6: bool) -> FlowRecord:
    """The values of the recordings, by the place of each element."""
    record = FlowRecord()
    recorded_ones = [one for one in ORDERS[order](ipv6=ipv6) if not one.name.endswith("Labels")]
    for place, one in enumerate(recorded_ones, start=1):
        values = {
            "u8": place, "u16": 1000 + place, "u64": (1 << 40) + place, "seconds": 1_700_000_000 + place,
            "ipv4": f"10.0.0.{place}", "ipv6": f"fd00::{place:x}", "string": f"text-{place}",
        }  # fmt: skip
        long = one.name == "destinationServicePortName"
        setattr(record, one.field, "s" * 300 if long else values[one.kind])
    return record


LABELS = struct.pack("!HHIHHI", 143 | 0x8000, 65535, 56506, 144 | 0x8000, 65535, 56506)
"""Fields of a template: sourcePodLabels and destinationPodLabels, before clusterId."""


def without_labels(message: bytes) -> bytes:
    """Those of a template, and of a record that has none."""
    at = message.find(LABELS)
    if at >= 0:
        fields = message[:at] + message[at + len(LABELS) :]
        count = int.from_bytes(fields[22:24]) - 2
        return resized(fields[:22] + count.to_bytes(2) + fields[24:])
    cluster = message.rindex(b"text-")
    assert message[cluster - 3 : cluster - 1] == b"\0\0"  # each is a text of no octets
    return resized(message[: cluster - 3] + message[cluster - 1 :])


def resized(message: bytes) -> bytes:
    """With the lengths of the message and of its set."""
    length = len(message)
    return message[:2] + length.to_bytes(2) + message[4:18] + (length - 16).to_bytes(2) + message[20:]


def without_time(message: bytes) -> bytes:
    return message[:4] + message[8:]


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_ipfix_messages_are_those_of_go_ipfix(order: str, ipv6: bool) -> None:
    writer = MessageWriter(12345, aggregated=order == "aggregated")
    template, data = recorded(f"{order}{6 if ipv6 else 4}")
    number = bytes((1, int(ipv6)))  # the recording has one template, ours are 256 and 257
    shortened = without_labels if order == "aggregated" else bytes
    mine = writer.templates(0)[int(ipv6)]
    assert without_time(shortened(mine)) == without_time(template[:20] + number + template[22:])
    [(message, count)] = writer.data([sample(order, ipv6=ipv6)], 0, 16384)
    assert count == 1
    assert without_time(shortened(message)) == without_time(data[:16] + number + data[18:])


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_ipfix_what_go_ipfix_sends_is_read(order: str, ipv6: bool) -> None:
    decoder = Decoder()
    template, data = recorded(f"{order}{6 if ipv6 else 4}")
    assert decoder.read(template)[1] == []
    header, records = decoder.read(data)
    assert (header.domain, header.sequence) == (12345, 0)
    assert records == [sample(order, ipv6=ipv6)]


UIDS: dict[str, Any] = {
    "source_pod_uid": "0b4f2f6c-5b5e-4c39-9d0f-3a1f0f6f7a01",
    "egress_uid": "0b4f2f6c-5b5e-4c39-9d0f-3a1f0f6f7a02",
    "source_node_uid": "0b4f2f6c-5b5e-4c39-9d0f-3a1f0f6f7a03",
}


@pytest.mark.parametrize("mode", ["aggregated", "proxied"])
@pytest.mark.parametrize("ipv6", [False, True])
def test_ipfix_names_and_uids_are_there_if_they_are_asked_for(ipv6: bool, mode: str) -> None:
    sent = FlowRecord(
        source_ip="fd00::1" if ipv6 else "10.0.0.1", source_pod_name="web", egress_name="out",
        # a static Pod's is no UUID
        destination_pod_uid="5e4b6d6ab2c3", ingress_network_policy_rule_name="r", **UIDS,
    )  # fmt: skip
    for names in (False, True):
        for uids in (False, True):
            writer, decoder = (
                MessageWriter(1, contents=Contents(False, names, uids), **{mode: True}),
                Decoder(),
            )
            for message in (*writer.templates(0), *(one for one, _ in writer.data([sent], 0, 16384))):
                read = decoder.read(message)[1]
            assert {name: getattr(read[0], name) for name in UIDS} == (
                UIDS if uids else dict.fromkeys(UIDS, "")
            )
            assert (read[0].source_pod_name, read[0].egress_name) == (("web", "out") if names else ("", ""))
            assert (read[0].ingress_network_policy_rule_name, read[0].destination_pod_uid) == (
                "r" * (names or uids),
                "",
            )


@pytest.mark.parametrize("biflow", [0, 1])
def test_ipfix_records_have_the_direction_if_it_is_asked_for(biflow: int) -> None:
    """Without the element a record is of a connection whose source has opened it."""
    sent = FlowRecord(source_ip="10.0.0.1", biflow_direction=biflow)
    for is_asked in (False, True):
        writer, decoder = MessageWriter(1, contents=Contents(direction=is_asked)), Decoder()
        for message in (*writer.templates(0), *(one for one, _ in writer.data([sent], 0, 16384))):
            read = decoder.read(message)[1]
        assert read[0].biflow_direction == (biflow if is_asked else 1)


def test_ipfix_uids_stand_where_upstream_has_them() -> None:
    """pkg/flowaggregator/infoelements/elements.go AntreaInfoElements."""
    with_names = [one.name for one in agent_elements(ipv6=False, contents=Contents(uids=True))]
    before = {name: with_names[at - 1] for at, name in enumerate(with_names) if name.endswith("UUID")}
    assert before == {
        "sourcePodUUID": "sourcePodNamespace", "sourceNodeUUID": "sourceNodeName",
        "destinationPodUUID": "destinationPodNamespace", "destinationNodeUUID": "destinationNodeName",
        "destinationServiceUUID": "destinationServicePortName",
        "ingressNetworkPolicyUUID": "ingressNetworkPolicyNamespace", "egressNetworkPolicyUUID": "egressNetworkPolicyNamespace",
        "egressUUID": "egressName", "egressNodeUUID": "egressNodeName",
    }  # fmt: skip


def test_ipfix_every_element_has_a_field_and_numbers_are_unique() -> None:
    assert [one.name for one in ELEMENTS if one.field not in FlowRecord.__struct_fields__] == []
    assert len({(one.enterprise, one.number) for one in ELEMENTS}) == len(ELEMENTS)


def test_ipfix_the_sequence_number_counts_records_and_messages_are_filled_up_to_a_size() -> None:
    writer, record = MessageWriter(1), FlowRecord(source_ip="10.0.0.1", destination_ip="10.0.0.2")
    sent = list(writer.data([record] * 10, 7, 500))
    assert sum(count for _, count in sent) == 10
    assert all(len(message) <= 500 for message, _ in sent)
    sequences = [HEADER.unpack_from(message)[3] for message, _ in sent]
    assert sequences == [sum(count for _, count in sent[:at]) for at in range(len(sent))]
    decoder = Decoder()
    for template in writer.templates(7):
        decoder.read(template)
    assert [one for message, _ in sent for one in decoder.read(message)[1]] == [record] * 10


def test_ipfix_values_that_do_not_fit_are_cut_and_never_break_the_message() -> None:
    record = FlowRecord(
        source_ip="10.0.0.1", source_transport_port=99999, packet_total_count=-1, tcp_state="é" * 40000
    )
    writer, decoder = MessageWriter(1), Decoder()
    for template in writer.templates(0):
        decoder.read(template)
    [(message, _)] = writer.data([record], 0, 1000)
    [read] = decoder.read(message)[1]
    assert (read.source_transport_port, read.packet_total_count) == (65535, 0)


def test_ipfix_a_domain_is_the_fnv_1_hash_of_the_name() -> None:
    assert domain_of("") == 0x811C9DC5
    assert domain_of("a") == 0x050C5D7E
    assert domain_of("foobar") == 0x31F0B262


def framed(number: int, body: bytes) -> bytes:
    return HEADER.pack(10, 20 + len(body), 0, 0, 1) + struct.pack("!HH", number, 4 + len(body)) + body


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "within its header"),
        (HEADER.pack(9, 16, 0, 0, 0), "version 9"),
        (HEADER.pack(10, 99, 0, 0, 0), "length says 99"),
        (HEADER.pack(10, 18, 0, 0, 0) + b"\0\2", "header of a set"),
        (HEADER.pack(10, 20, 0, 0, 0) + struct.pack("!HH", 2, 3), "a set of 3 bytes"),
        (HEADER.pack(10, 20, 0, 0, 0) + struct.pack("!HH", 2, 99), "a set of 99 bytes"),
        (framed(77, b""), "no set has number 77"),
        (framed(2, struct.pack("!HH", 100, 1)), "number 100 is below"),
        (framed(2, struct.pack("!HH", 256, 9999)), "9999 fields"),
        (framed(2, struct.pack("!HHHH", 256, 2, 8, 4)), "ends within a field"),
        (framed(2, struct.pack("!HHHH", 256, 1, 0x8008, 4)), "enterprise number"),
        (framed(2, struct.pack("!HHHH", 256, 1, 8, 0)), "no bytes"),
    ],
)
def test_ipfix_malformed_messages_are_refused(message: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        Decoder().read(message)


def test_ipfix_a_session_has_a_bounded_number_of_templates() -> None:
    decoder = Decoder()
    for number in range(MAX_TEMPLATES):
        decoder.read(framed(2, struct.pack("!HHHH", 256 + number, 1, 8, 4)))
    with pytest.raises(Invalid, match="more than 64"):
        decoder.read(framed(2, struct.pack("!HHHH", 999, 1, 8, 4)))
    decoder.read(framed(2, struct.pack("!HH", 256, 0)))
    decoder.read(framed(2, struct.pack("!HHHH", 999, 1, 8, 4)))


def test_ipfix_a_session_has_a_bounded_number_of_fields_and_withdrawn_templates_make_room() -> None:
    decoder, most = Decoder(), MAX_SESSION_FIELDS // 256
    fields = struct.pack("!HH", 4, 1) * 256

    def learn(number: int, count: int = 256) -> None:
        template = struct.pack("!HH", number, count) + fields[: 4 * count]
        body = struct.pack("!HH", 2, 4 + len(template)) + template
        decoder.read(HEADER.pack(10, HEADER.size + len(body), 0, 0, 1) + body)

    for number in range(256, 256 + most):
        learn(number)
    learn(256)
    with pytest.raises(Invalid, match=f"more than {MAX_SESSION_FIELDS} fields"):
        learn(256 + most)
    learn(256, 0)
    learn(256 + most)


def test_ipfix_texts_are_cut_so_that_no_sender_fills_the_memory() -> None:
    record = FlowRecord(source_pod_name="n" * 60_000)
    writer, decoder = MessageWriter(1), Decoder()
    decoder.read(writer.templates(0)[0])
    [(message, _)] = writer.data([record], 0, 65535)
    [read] = decoder.read(message)[1]
    assert read.source_pod_name == "n" * MAX_TEXT


def test_ipfix_unknown_elements_are_skipped_and_a_changed_template_is_used_at_once() -> None:
    decoder = Decoder()
    decoder.read(framed(2, struct.pack("!HHHHIHH", 256, 2, 0x8001, 65535, 424242, 8, 4)))
    assert decoder.read(framed(256, b"\x03abc\x0a\0\0\1"))[1] == [FlowRecord(source_ip="10.0.0.1")]
    decoder.read(framed(2, struct.pack("!HHHH", 256, 1, 7, 2)))
    assert decoder.read(framed(256, b"\0\x50"))[1] == [FlowRecord(source_transport_port=80)]
    assert decoder.read(framed(300, b"x"))[1] == []
    assert decoder.unknown == 1


def test_ipfix_records_share_their_texts_and_long_ones_of_a_sender_are_not_kept() -> None:
    writer, decoder = MessageWriter(1), Decoder()
    decoder.read(writer.templates(0)[0])

    def read(name: str) -> FlowRecord:
        sent = FlowRecord(source_ip="10.0.0.1", source_pod_name=name)
        [(message, _)] = writer.data([sent], 0, 65535)
        return decoder.read(message)[1][0]

    one, other = read("web-0"), read("web-0")
    assert one.source_pod_name is other.source_pod_name
    assert one.source_ip is other.source_ip
    long = "n" * MAX_PART  # with what else its part has, the part is longer
    assert read(long).source_pod_name is not read(long).source_pod_name


@pytest.mark.parametrize(("source", "other"), [("10.0.0.1", "fd00::2"), ("fd00::1", "10.0.0.2")])
def test_ipfix_an_address_of_the_other_family_is_left_out_and_the_record_is_written(
    source: str, other: str
) -> None:
    """Or its destination would try to write it for ever."""
    writer, decoder = MessageWriter(1), Decoder()
    for message in writer.templates(0):
        decoder.read(message)
    sent = FlowRecord(
        source_ip=source, destination_ip=other, destination_cluster_ip=other, proxy_snat_ip=source
    )
    [(message, _)] = writer.data([sent], 0, 65535)
    [read] = decoder.read(message)[1]
    assert (read.source_ip, read.destination_ip, read.destination_cluster_ip) == (source, "", "")
    assert read.proxy_snat_ip == source


def test_ipfix_a_field_that_a_template_has_twice_is_read_twice() -> None:
    """Addresses of both families are one field of a record; of what is read together, as of what is not."""
    decoder = Decoder()
    fields = (8, 4, 27, 16, 8, 4, 7, 2, 7, 1)
    decoder.read(framed(2, struct.pack("!HH10H", 256, 5, *fields)))
    body = b"\x0a\0\0\1" + bytes(15) + b"\1" + b"\x0a\0\0\2" + b"\0\x50" + b"\x51"
    assert decoder.read(framed(256, body))[1] == [
        FlowRecord(source_ip="10.0.0.2", source_transport_port=0x51)
    ]
