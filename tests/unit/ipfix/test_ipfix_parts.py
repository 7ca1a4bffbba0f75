"""Parts of records that are read and written once for all that have the same are those of each record, whatever it has."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.apis.flow import FlowRecord
from antrea.errors import Invalid
from antrea.ipfix import record_reader
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import HEADER, MessageWriter
from antrea.ipfix.recent import Recent
from antrea.ipfix.template import Contents, aggregated_elements

CONTENTS = Contents(requests=True, uids=True)
ADDRESSES = {False: "10.0.0.", True: "fd00::"}
ALL = [one for one in aggregated_elements(ipv6=False, contents=CONTENTS) if not one.name.endswith("Labels")]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
VALUES: dict[str, Any] = {
    "u8": st.integers(0, 255), "u16": st.integers(0, 65535), "u64": st.integers(0, 2**64 - 1),
    "seconds": st.integers(0, 2**32 - 1), "string": TEXTS,
}  # fmt: skip


def records() -> st.SearchStrategy[FlowRecord]:
    fields = {one.field: VALUES[one.kind] for one in ALL if one.kind in VALUES}
    return st.builds(FlowRecord, **fields, source_ip=st.sampled_from(["10.0.0.1", "fd00::1"]))


def session() -> tuple[MessageWriter, Decoder]:
    writer, decoder = MessageWriter(1, aggregated=True, contents=CONTENTS), Decoder()
    for template in writer.templates(0):
        decoder.read(template)
    return writer, decoder


WRITER, DECODER = session()
"""Those of the whole test: what they have kept of one record is there for the next."""


@settings(max_examples=25, deadline=None)
@given(st.lists(records(), min_size=1, max_size=3), st.integers(0, 2**64 - 1))
def test_a_record_is_the_same_whether_its_parts_came_before_or_not(
    sent: list[FlowRecord], octets: int
) -> None:
    again = [msgspec.structs.replace(one, octet_total_count=octets, http_vals="{}") for one in sent]
    every = [*sent, *again, *sent]
    read = [one for message, _ in WRITER.data(every, 0, 65535) for one in DECODER.read(message)[1]]
    # a message has records of one family
    assert read == sorted(every, key=lambda one: one.is_ipv6)
    alone = [message for one in every for message, _ in session()[0].data([one], 0, 65535)]
    before = [message for one in every for message, _ in WRITER.data([one], 0, 65535)]
    assert [one[HEADER.size :] for one in before] == [one[HEADER.size :] for one in alone]


def test_a_part_whose_values_do_not_fit_is_written_with_the_nearest_that_do() -> None:
    writer, decoder = session()
    for _ in range(2):
        [(message, _)] = writer.data([FlowRecord(flow_type=300, destination_service_port=-1)], 0, 65535)
        [read] = decoder.read(message)[1]
        assert (read.flow_type, read.destination_service_port) == (255, 0)


@pytest.mark.parametrize(
    ("body", "why"), [(b"\x03ab", "does not fit"), (b"\xff\x01", "does not fit"), (b"\x01a", "does not fit")]
)
def test_a_part_that_ends_within_a_value_is_refused(body: bytes, why: str) -> None:
    decoder = Decoder()
    template = struct.pack("!HHHHIHH", 256, 2, 101 | 0x8000, 65535, 56506, 4, 1)
    decoder.read(framed(2, template))
    with pytest.raises(Invalid, match=why):
        decoder.read(framed(256, body))


def test_a_part_that_ends_before_the_length_of_a_value_is_refused() -> None:
    decoder = Decoder()
    template = struct.pack("!HHHHIHHI", 256, 2, 101 | 0x8000, 65535, 56506, 100 | 0x8000, 65535, 56506)
    decoder.read(framed(2, template))
    with pytest.raises(Invalid, match="before the length of a value"):
        decoder.read(framed(256, b"\x01a" + b"\x01b" + b"\x01c"[:1] + b"c"))


def framed(number: int, body: bytes) -> bytes:
    return HEADER.pack(10, 20 + len(body), 0, 0, 1) + struct.pack("!HH", number, 4 + len(body)) + body


def test_requests_and_long_parts_of_a_sender_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_reader, "_PARTS", Recent(100))
    writer, decoder = session()

    def read(**values: Any) -> int:
        before = len(record_reader._PARTS)
        for at in range(20):
            [(message, _)] = writer.data([FlowRecord(source_ip="10.0.0.1", **{k: v(at) for k, v in values.items()})], 0, 65535)  # fmt: skip
            decoder.read(message)
        return len(record_reader._PARTS) - before

    read(source_pod_name=lambda _: "the first")
    assert read(source_pod_name=lambda _: "the first", http_vals=lambda at: f"requests-{at}") == 0
    assert read(source_pod_name=lambda at: "n" * record_reader.MAX_PART + f"{at}") == 0
    assert read(source_pod_name=lambda at: f"another-{at}") == 20


def test_what_is_kept_is_bounded_and_what_is_asked_for_stays() -> None:
    kept: Recent[int, str] = Recent(10)
    for number in range(100):
        kept.keep(number, str(number))
        assert kept.get(0) == "0"
        assert len(kept) <= 10
    assert kept.get(50) is None
    assert kept.get(99) == "99"
