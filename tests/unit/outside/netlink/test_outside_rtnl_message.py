"""Messages of rtnetlink: what is read is what was written, and octets that are none do no harm."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.outside.netlink.message import attribute, attributes, replies


def test_an_answer_tells_its_request_whether_more_comes_and_why_not() -> None:
    refused = bytes.fromhex("14000000 0200 0000 09000000 00000000") + (-errno.EEXIST).to_bytes(
        4, "little", signed=True
    )
    done = bytes.fromhex("14000000 0300 0200 0a000000 00000000 00000000")
    more = bytes.fromhex("10000000 1000 0200 0b000000 00000000")
    assert [(one.number, one.ends, one.errno) for one in replies(refused + done + more)] == [
        (9, True, errno.EEXIST),
        (10, True, 0),
        (11, False, 0),
    ]


@given(st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=40)), unique_by=lambda pair: pair[0]))
def test_attributes_are_read_as_they_were_written(pairs: list[tuple[int, bytes]]) -> None:
    assert attributes(b"".join(attribute(*pair) for pair in pairs)) == dict(pairs)


@given(st.binary(max_size=200))
def test_octets_that_are_no_message_end(octets: bytes) -> None:
    assert len(list(replies(octets))) + len(attributes(octets)) <= len(octets)


@pytest.mark.parametrize("flag", [0x8000, 0x4000])
def test_the_flags_in_an_attributes_number_are_not_part_of_it(flag: int) -> None:
    assert attributes(attribute(5 | flag, b"five")) == {5: b"five"}
