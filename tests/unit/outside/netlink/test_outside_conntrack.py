"""What the kernel says of connections: which of them keep an address in use."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from antrea.outside.netlink.conntrack import destination, question
from antrea.outside.netlink.message import attribute

HEAD = bytes(4)
SEEN, ASSURED = 2, 4
TCP = range(9)  # none, SYN_SENT, SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT, LAST_ACK, TIME_WAIT, CLOSE


def connection(to: str, status: int, tcp: int | None = None) -> bytes:
    ip = ip_address(to)
    answer = attribute(0x8002, attribute(0x8001, attribute(2 if ip.version == 4 else 4, ip.packed)))
    state = b"" if tcp is None else attribute(0x8004, attribute(0x8001, attribute(1, bytes([tcp]))))
    return HEAD + answer + attribute(3, status.to_bytes(4, "big")) + state


@pytest.mark.parametrize("to", ["203.0.113.9", "fd00:9::9"])
def test_a_connection_counts_from_its_answer_on_until_one_end_has_heard_all_of_the_other(to: str) -> None:
    version, ip = ip_address(to).version, ip_address(to)
    found = {state: destination(connection(to, SEEN | ASSURED, state), version) for state in TCP}
    assert {state for state, seen in found.items() if seen} == {2, 3, 4, 5}
    assert {*found.values()} == {ip, None}
    assert destination(connection(to, SEEN), version) == ip
    assert destination(connection(to, 0), version) is None
    assert destination(connection(to, 0, 1), version) is None
    assert destination(HEAD, version) is None


def test_the_kernel_is_asked_for_one_address_alone_or_for_all_of_a_family() -> None:
    assert question(6, None).body == bytes([10, 0, 0, 0])
    one = question(4, ip_address("203.0.113.9")).body
    assert one[:4] == bytes([2, 0, 0, 0])
    assert one.count(ip_address("203.0.113.9").packed) == 1
    assert destination(one + attribute(3, bytes([0, 0, 0, SEEN])), 4) == ip_address("203.0.113.9")


def test_where_a_first_packet_went_is_told_apart_from_where_answers_go() -> None:
    asked = question(4, ip_address("203.0.113.9"), to=True).body
    seen = attribute(3, bytes([0, 0, 0, SEEN]))
    assert destination(asked + seen, 4, to=True) == ip_address("203.0.113.9")
    assert destination(asked + seen, 4) is None
    assert destination(asked + seen, 4, to=True, forwarded=True) is None
    forwarded = attribute(3, bytes([0, 0, 0, SEEN | 1 << 5]))
    assert destination(asked + forwarded, 4, to=True, forwarded=True) == ip_address("203.0.113.9")
    assert destination(question(4, ip_address("203.0.113.9")).body + seen, 4, to=True) is None
