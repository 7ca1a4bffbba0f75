"""DNS answers as servers, strangers and broken wires send them."""

from __future__ import annotations

from ipaddress import ip_address

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.errors import Invalid
from antrea.features.network_policy.agent.dns_answer import (
    MAX_ADDRESSES,
    MAX_ALIASES,
    DnsAnswer,
    dns_answer,
)
from antrea.features.network_policy.agent.dns_stream import MAX_STREAMS, DnsStreams
from antrea.openflow.packet import TCP, Packet


def message(name: str, *records: str, kind: str = "A", code: int = 0) -> bytes:
    """An answer to a question for `name`; each record is `owner ttl type data`."""
    answer = dns.message.make_response(dns.message.make_query(name, kind, use_edns=True, id=7))
    answer.set_rcode(dns.rcode.Rcode(code))
    for record in records:
        owner, ttl, type_, data = record.split(maxsplit=3)
        answer.answer.append(dns.rrset.from_text(owner, int(ttl), "IN", type_, data))
    return answer.to_wire(max_size=65535)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            message("API.example.", "api.example. 30 A 192.0.2.1", "api.example. 30 A 192.0.2.2"),
            DnsAnswer("api.example", (("192.0.2.1", 30), ("192.0.2.2", 30))),
        ),
        (
            message("api.example.", "api.example. 9 AAAA 2001:db8::1", kind="AAAA"),
            DnsAnswer("api.example", (("2001:db8::1", 9),)),
        ),
        (
            message("www.example.", "www.example. 300 CNAME a.cdn.test.", "a.cdn.test. 20 CNAME b.cdn.test.", "b.cdn.test. 60 A 192.0.2.1"),
            DnsAnswer("www.example", (("192.0.2.1", 20),)),
        ),
        # what nobody asked for does not count
        (message("api.example.", "bank.example. 30 A 192.0.2.66"), None),
        (message("api.example.", "api.example. 30 AAAA 2001:db8::1"), None),
        (message("api.example.", "www.example. 30 CNAME api.example.", "api.example. 5 A 192.0.2.1"), DnsAnswer("api.example", (("192.0.2.1", 5),))),
        (message("api.example."), None),
        (message("api.example.", code=dns.rcode.NXDOMAIN), None),
        (message("api.example.", "api.example. 30 A 192.0.2.1", code=dns.rcode.SERVFAIL), None),
        (message("api.example.", "api.example. 30 TXT hello", kind="TXT"), None),
    ],
)  # fmt: skip
def test_the_addresses_of_the_name_that_was_asked_for_count(said: bytes, found: DnsAnswer | None) -> None:
    assert dns_answer(said) == found


def test_a_truncated_answer_counts_as_far_as_it_goes() -> None:
    whole = message("api.example.", *(f"api.example. 30 A 192.0.2.{number}" for number in range(1, 9)))
    cut = bytearray(whole)
    cut[2] |= dns.flags.TC >> 8
    assert dns_answer(bytes(cut)) == dns_answer(whole)
    assert dns_answer(whole + b"trailing octets") == dns_answer(whole)


def test_an_answer_has_a_limited_number_of_addresses() -> None:
    records = [
        f"api.example. 30 A 10.0.{number // 256}.{number % 256}" for number in range(MAX_ADDRESSES + 50)
    ]
    found = dns_answer(message("api.example.", *records))
    assert found is not None
    assert len(found.addresses) == MAX_ADDRESSES


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00" * 12,
        dns.message.make_query("api.example.", "A").to_wire(),
        message("api.example.", *(f"{'api' if n == 0 else f'n{n}'}.example. 30 CNAME n{n + 1}.example." for n in range(MAX_ALIASES + 2))),
        message("api.example.", "api.example. 30 CNAME api.example."),
        b"\x00\x00\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01",
    ],
    ids=("empty", "zeros", "question", "long chain", "circle", "pointer to itself"),
)  # fmt: skip
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    with pytest.raises(Invalid):
        dns_answer(said)


@given(st.binary(max_size=200), st.integers(0, 60))
def test_any_octets_are_an_answer_or_refused(noise: bytes, at: int) -> None:
    good = message("www.example.", "www.example. 300 CNAME a.test.", "a.test. 20 A 192.0.2.1")
    for said in (noise, good[:at] + noise + good[at + len(noise) :], good[: at * 2]):
        try:
            found = dns_answer(said)
        except Invalid:
            continue
        for address, seconds in found.addresses if found else ():
            # no address but one that the message has
            assert ip_address(address).packed in said
            assert 0 <= seconds < 1 << 31
        assert found is None or 0 < len(found.addresses) <= MAX_ADDRESSES
        if good.startswith(said) or not noise:
            assert found in (None, DnsAnswer("www.example", (("192.0.2.1", 20),)))


FIRST, SECOND, THIRD, NEXT = b"first message", b"the second one", b"third message", b"the next message"


def segment(
    data: bytes, sequence: int, *, port: int = 4000, flags: int = 0x18, client: str = "10.10.0.7"
) -> Packet:
    header = (
        b"\x00\x35"
        + port.to_bytes(2)
        + (sequence & 0xFFFFFFFF).to_bytes(4)
        + b"\x00" * 4
        + bytes([0x50, flags])
        + b"\x00" * 6
    )
    return Packet(b"", b"", False, "192.0.2.53", client, TCP, 0, b"", header + data, True)


def framed(*messages: bytes) -> bytes:
    return b"".join(len(one).to_bytes(2) + one for one in messages)


def test_messages_of_a_stream_are_put_together() -> None:
    streams, whole = DnsStreams(), framed(FIRST, SECOND, THIRD)
    found = [streams.messages(segment(whole[at : at + 7], 0xFFFFFFFA + at)) for at in range(0, len(whole), 7)]
    assert [one for some in found for one in some] == [FIRST, SECOND, THIRD]


def test_a_segment_that_comes_once_more_gives_its_messages_once_more() -> None:
    streams, whole = DnsStreams(), framed(FIRST, SECOND, THIRD)
    start = 0xFFFFFFFA
    for at in range(0, len(whole), 7):
        streams.messages(segment(whole[at : at + 7], start + at))
    last = len(whole) - len(whole) % 7
    assert streams.messages(segment(whole[last:], start + last)) == [THIRD]
    # all that was not confirmed in one segment, and a part of what came before
    assert streams.messages(segment(whole[16:], start + 16)) == [SECOND, THIRD]
    assert streams.messages(segment(whole[:7], start)) == [FIRST]
    assert streams.messages(segment(framed(NEXT), start + len(whole))) == [NEXT]


def test_no_more_is_kept_of_a_stream_than_its_latest_messages() -> None:
    streams, one = DnsStreams(), framed(bytes(30_000))
    for number in range(8):
        assert streams.messages(segment(one, 9 + number * len(one))) == [bytes(30_000)]
    (kept,) = streams._streams.values()
    assert len(kept.data) == 2 * len(one)
    assert streams.messages(segment(one, 9 + 7 * len(one))) == [bytes(30_000)]


def test_a_segment_out_of_order_begins_anew() -> None:
    streams, whole = DnsStreams(), framed(FIRST)
    assert streams.messages(segment(whole[:4], 100)) == []
    assert streams.messages(segment(whole[4:], 300)) == []
    assert streams.messages(segment(whole, 500)) == [FIRST]


def test_streams_that_stop_within_a_message_are_few() -> None:
    streams = DnsStreams()
    for port in range(2 * MAX_STREAMS):
        streams.messages(segment(b"\xff\xffx", 1, port=port))
    assert len(streams) == MAX_STREAMS


def test_a_client_with_many_streams_makes_none_of_another_go() -> None:
    streams, whole = DnsStreams(), framed(FIRST)
    streams.messages(segment(whole[:9], 1, client="10.10.0.8"))
    for port in range(2 * MAX_STREAMS):
        streams.messages(segment(b"\xff\xffx", 1, port=port))
    assert streams.messages(segment(whole[9:], 10, client="10.10.0.8")) == [FIRST]


@pytest.mark.parametrize("data", [b"\0\0" * 700, framed(*[FIRST] * 17), framed(b"short")])
def test_a_segment_of_many_or_of_empty_messages_is_refused(data: bytes) -> None:
    with pytest.raises(Invalid):
        DnsStreams().messages(segment(data, 1))
