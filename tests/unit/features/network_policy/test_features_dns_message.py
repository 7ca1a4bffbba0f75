"""The reader of DNS answers against dnspython's, and what it costs at most."""

from __future__ import annotations

import sys

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.errors import Invalid
from antrea.features.network_policy.agent.dns_answer import MAX_BYTES, DnsAnswer, dns_answer

LABELS = st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=4)
OWNERS = st.sampled_from(["www.example.", "WWW.example.", "a.test.", "b.a.test.", "other.test."])
RECORDS = st.tuples(
    OWNERS, st.integers(0, 2**31 - 1), st.sampled_from(["A 192.0.2.1", "A 192.0.2.2", "AAAA 2001:db8::1", "CNAME a.test.", "CNAME b.a.test.", "TXT hello", "MX 1 a.test."])
)  # fmt: skip


def by_dnspython(message: bytes) -> DnsAnswer | None:
    """What dnspython makes of a message, by the same rules."""
    read = dns.message.from_wire(message)
    (question,) = read.question
    if question.rdtype not in (dns.rdatatype.A, dns.rdatatype.AAAA) or read.rcode():
        return None
    name, seconds = question.name, []
    for _ in range(9):
        aliases = [one for one in read.answer if (one.name, one.rdtype) == (name, dns.rdatatype.CNAME)]
        if aliases:
            name = aliases[0][0].target
            seconds.append(aliases[0].ttl)
    for found in read.answer:
        if (found.name, found.rdtype) == (name, question.rdtype):
            ttl = min([found.ttl, *seconds])
            text = question.name.to_text(omit_final_dot=True).lower()
            return DnsAnswer(text, tuple((one.address, ttl) for one in found))
    return None


@given(st.lists(RECORDS, max_size=8), st.sampled_from(["A", "AAAA"]))
def test_what_dnspython_reads_is_read(records: list[tuple[str, int, str]], kind: str) -> None:
    said = dns.message.make_response(dns.message.make_query("www.example.", kind, use_edns=True))
    chain = {}
    for owner, ttl, data in records:
        # one alias of a name, and none of the names behind it: two are an error, and circles are
        if data.startswith("CNAME"):
            owner, place = owner.lower(), ["www.example.", "a.test.", "b.a.test."]
            target = data.removeprefix("CNAME ")
            if owner not in place or place.index(owner) >= place.index(target) or owner in chain:
                continue
            chain[owner] = target
        said.answer.append(dns.rrset.from_text(owner, ttl, "IN", *data.split(maxsplit=1)))
    message = said.to_wire()
    assert dns_answer(message) == by_dnspython(message)


@given(LABELS)
def test_names_are_written_as_dnspython_writes_them(labels: list[bytes]) -> None:
    name = dns.name.Name([*labels, b""])
    said = dns.message.make_response(dns.message.make_query(name, "A"))
    said.answer.append(dns.rrset.from_rdata(name, 9, dns.rdata.from_text("IN", "A", "192.0.2.1")))
    assert dns_answer(said.to_wire()) == DnsAnswer(
        dns.name.Name([*(one.lower() for one in labels), b""]).to_text(omit_final_dot=True),
        (("192.0.2.1", 9),),
    )


MAX_CALLS = 40_000
"""Calls of functions, of Python and of C, in which any message is read; at most 24,449 were counted, and 8 million with dnspython."""


def long_message(
    count: int, data: bytes = b"\0\x01\0\x01\0\0\0\x09\0\x04\x0a\0\0\x01", owner: bytes = b"\xc0\x0c"
) -> bytes:
    head = b"\0\x07\x81\x80\0\x01" + min(count, 0xFFFF).to_bytes(2) + b"\0\0\0\0"
    return head + b"\x03www\x07example\0\0\x01\0\x01" + count * (owner + data)


def chains(count: int) -> bytes:
    """Records whose owners are each one label longer than the one before, by a pointer to it."""
    message = long_message(0)
    at = 12
    for _ in range(count):
        owner = b"\x01a" + (0xC000 | at).to_bytes(2)
        at = len(message)
        message += owner + b"\0\x01\0\x01\0\0\0\x09\0\x04\x0a\0\0\x01"
    return message[:6] + count.to_bytes(2) + message[8:]


@pytest.mark.parametrize(
    "message",
    [
        long_message(4000),
        long_message(4000, owner=b"\x01a" * 120 + b"\xc0\x0c"),
        long_message(1000, owner=b"\x3f" + 63 * b"a" + b"\x3f" + 63 * b"b" + b"\xc0\x0c"),
        chains(110),
        long_message(16000, b"\0\x01\0\x01\0\0\0\x09\0\0"),
    ],
    ids=("many addresses", "many labels", "long labels", "chains of pointers", "empty records"),
)
def test_the_longest_message_takes_a_bounded_number_of_steps(message: bytes) -> None:
    """dnspython follows each pointer of each record anew: a message of 64 KiB is a million steps."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        dns_answer(message)
    except Invalid:
        pass
    finally:
        sys.setprofile(None)
    assert calls < MAX_CALLS


def test_a_message_counts_as_far_as_it_is_read() -> None:
    numbers = [number.to_bytes(2) for number in range(4000)]
    head = long_message(0)
    records = b"".join(b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x0a\0" + one for one in numbers)
    message = head[:6] + (4000).to_bytes(2) + head[8:] + records
    found = dns_answer(message)
    assert found is not None
    assert found.addresses[0] == ("10.0.0.0", 9)
    assert found == dns_answer(message[:MAX_BYTES])


@pytest.mark.parametrize(
    "message",
    [
        long_message(1)[:2] + b"\xa9\x80" + long_message(1)[4:],  # opcode UPDATE
        b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0" + b"\xc0\x20\0\x01\0\x01",
        b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0" + b"\x80www\0\0\x01\0\x01",
        b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0" + b"\x3f" + 63 * b"a" + b"\x3f" + 63 * b"a" + b"\x3f" + 63 * b"a" + b"\x3f" + 63 * b"a" + b"\0\0\x01\0\x01",
    ],
    ids=("update", "pointer ahead", "extended label", "long name"),
)  # fmt: skip
def test_what_is_no_name_is_refused(message: bytes) -> None:
    with pytest.raises(Invalid):
        dns_answer(message)
