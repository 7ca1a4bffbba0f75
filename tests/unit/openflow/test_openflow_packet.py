"""Packets of strangers are read or refused, and answered as their destination would."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.errors import Invalid
from antrea.openflow.fields import GENERATED_REJECT_PACKET_OUT_REG_MARK as GENERATED
from antrea.openflow.fields import PACKET_IN_OPERATION, PACKET_IN_TABLE
from antrea.openflow.packet import ICMP, ICMPV6, TCP, UDP, Packet, packet
from antrea.openflow.packet_in import PacketIn, packet_in
from antrea.openflow.packet_out import PacketOut
from antrea.openflow.rejection import answer

CLIENT_MAC, SERVER_MAC = bytes.fromhex("0a0000000001"), bytes.fromhex("0a0000000002")
ENDS = {False: ("10.0.0.1", "10.0.0.2"), True: ("fd00::1", "fd00::2")}
SYN, ACK, RST, FIN = 2, 16, 4, 1


def frame(protocol: int, body: bytes, *, v6: bool = False, extra: bytes = b"", offset: int = 0) -> bytes:
    """A packet of the client; `extra` are options of IPv4, or headers of IPv6 that begin with their own number."""
    source, destination = (ip_address(end).packed for end in ENDS[v6])
    if v6:
        size = len(extra[1:]) + len(body)
        head = struct.pack("!IHBB", 6 << 28, size, extra[0] if extra else protocol, 64)
        head += source + destination + extra[1:]
    else:
        first = 0x45 + len(extra) // 4
        size = 20 + len(extra) + len(body)
        head = (
            struct.pack("!BBHHHBBH", first, 0, size, 7, offset, 64, protocol, 0)
            + source
            + destination
            + extra
        )
    return SERVER_MAC + CLIENT_MAC + (b"\x86\xdd" if v6 else b"\x08\x00") + head + body


def segment(flags: int, sequence: int = 1000, expected: int = 0, data: bytes = b"") -> bytes:
    return struct.pack("!HHIIBBHHH", 43210, 80, sequence, expected, 5 << 4, flags, 512, 0, 0) + data


def rejected(text: bytes, *, unserved: bool = False) -> Packet | None:
    """The answer, read; its checksums are right."""
    found = answer(packet(text), SERVER_MAC, CLIENT_MAC, unserved=unserved)
    if found is None:
        return None
    read = packet(found)
    ends = b"".join(ip_address(end).packed for end in (read.source, read.destination))
    beside = struct.pack("!II", len(read.payload), read.protocol)
    assert read.ipv6 or checksum(read.header) == 0
    assert checksum((b"" if read.protocol == ICMP else ends + beside) + read.payload) == 0
    assert found[:12] == CLIENT_MAC + SERVER_MAC
    return read


def checksum(text: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(text) + 1) // 2}H", text + b"\0" * (len(text) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


@pytest.mark.parametrize("v6", [False, True])
def test_a_new_connection_is_refused_by_a_reset_from_its_destination(v6: bool) -> None:
    found = rejected(frame(TCP, segment(SYN), v6=v6))
    client, server = ENDS[v6]
    assert found
    assert (found.source, found.destination, found.ports) == (server, client, (80, 43210))
    assert found.payload[4:16] == struct.pack("!IIBBH", 0, 1001, 0x50, RST | ACK, 0)
    hops = found.header[7] if v6 else found.header[8]
    assert (hops, len(found.payload)) == (128, 20)


@pytest.mark.parametrize(
    ("flags", "data", "numbers"),
    [
        (SYN, b"early", (0, 1006, RST | ACK)),
        (FIN, b"", (0, 1001, RST | ACK)),
        (0, b"abc", (0, 1003, RST | ACK)),
        (ACK, b"abc", (77, 0, RST)),
        (ACK | FIN, b"", (77, 0, RST)),
    ],
)
def test_a_reset_has_the_number_that_its_receiver_takes(
    flags: int, data: bytes, numbers: tuple[int, int, int]
) -> None:
    found = rejected(frame(TCP, segment(flags, expected=77, data=data)))
    assert found
    sequence, acknowledged, _, said = struct.unpack("!IIBB", found.payload[4:14])
    assert (sequence, acknowledged, said) == numbers


@pytest.mark.parametrize(
    ("protocol", "v6", "unserved", "kind", "head"),
    [
        (UDP, False, False, ICMP, "030a"),
        (132, False, False, ICMP, "030a"),
        (UDP, True, False, ICMPV6, "0101"),
        (UDP, False, True, ICMP, "0303"),
        (132, True, True, ICMPV6, "0104"),
    ],
)
def test_what_has_no_reset_hears_why_with_the_beginning_of_the_packet(
    protocol: int, v6: bool, unserved: bool, kind: int, head: str
) -> None:
    """A policy prohibits; a port that nobody serves is unreachable."""
    text = frame(protocol, struct.pack("!HHHH", 5000, 53, 12, 0) + b"data", v6=v6)
    found = rejected(text, unserved=unserved)
    assert found
    assert (found.source, found.destination, found.protocol) == (*reversed(ENDS[v6]), kind)
    assert found.payload[:2].hex() == head
    assert found.payload[8:] == text[14 : 14 + (40 if v6 else 20) + 8]


def test_options_of_the_packet_are_quoted_and_its_ports_found_behind_them() -> None:
    options = b"\x94\x04\0\0"
    datagram = struct.pack("!HHHH", 5000, 53, 8, 0)
    found = rejected(frame(UDP, datagram, extra=options))
    assert found
    assert found.payload[8:] == packet(frame(UDP, datagram, extra=options)).header + datagram
    hop_by_hop = b"\0" + struct.pack("!BB", UDP, 0) + b"\x01\x04\0\0\0\0"
    assert packet(frame(UDP, datagram, v6=True, extra=hop_by_hop)).ports == (5000, 53)


@pytest.mark.parametrize(
    "text",
    [
        frame(TCP, segment(RST)),
        frame(TCP, segment(SYN)[:12]),
        frame(ICMP, b"\x03\x01" + b"\0" * 30),
        frame(ICMPV6, b"\x01\x04" + b"\0" * 30, v6=True),
        frame(ICMP, b""),
        frame(UDP, b"later", offset=100),
        frame(UDP, b"later", v6=True, extra=b"\x2c" + struct.pack("!BBHI", UDP, 0, 8, 1)),
        frame(UDP, b"12345678").replace(ip_address("10.0.0.2").packed, ip_address("239.1.1.1").packed),
    ],
)
def test_a_reset_an_error_a_later_fragment_and_a_group_are_not_answered(text: bytes) -> None:
    assert rejected(text) is None


@pytest.mark.parametrize(("protocol", "v6", "kind"), [(ICMP, False, 8), (ICMPV6, True, 128)])
def test_a_ping_is_answered(protocol: int, v6: bool, kind: int) -> None:
    assert rejected(frame(protocol, bytes((kind, 0)) + b"\0" * 6, v6=v6)) is not None


def test_a_short_packet_may_have_padding_which_is_none_of_it() -> None:
    found = packet(frame(TCP, segment(SYN)) + b"\0" * 20)
    assert (len(found.payload), found.length) == (20, 40)


def test_a_packet_in_is_read_with_registers_of_either_width() -> None:
    fields = (
        struct.pack("!HBBI", 0x8000, 0, 4, 7)
        + struct.pack("!HBBQQ", 0x8001, 0 << 1 | 1, 16, 0x04400000 << 32, 0xFFFFFFFF << 32)
        + struct.pack("!HBBI", 0x0001, 2 << 1, 4, 0x0D)
        + struct.pack("!HBB3s", 0xFFFF, 0, 3, b"old")
    )
    body = b"".join(
        struct.pack("!HH", kind, 4 + len(value)) + value + b"\0" * (-(4 + len(value)) % 8)
        for kind, value in ((0, b"frame"), (3, b"\x1d"), (5, b"\x00"), (6, fields), (7, b"\x01\x02"))
    )
    found = packet_in(body)
    assert found == PacketIn(b"\x01\x02", 29, 7, {0: 0x04400000, 1: 0, 2: 13}, b"frame")
    assert (found.value(PACKET_IN_OPERATION), found.value(PACKET_IN_TABLE)) == (2, 13)


def test_a_packet_out_says_port_marks_and_way() -> None:
    out = PacketOut(b"frame", 7, (GENERATED,), table=17)
    assert out.body == bytes.fromhex(
        "ffffffff 00200000 0001000c 80000004 00000007 00000000 "
        "00190010 00010108 00002000 00002000 ffff0010 00002320 000efff8 11000000 6672616d 65"
    )
    port = PacketOut(b"", 7, out_port=9).body
    assert port[-16:].hex() == "0000001000000009ffff000000000000"


def goes_back(found: Packet) -> None:
    """If a packet is answered, then by one to its source alone that can be read, and never to a group."""
    reply = answer(found, SERVER_MAC, CLIENT_MAC)
    if reply is None:
        return
    back = packet(reply)
    assert (back.source, back.destination) == (found.destination, found.source)
    assert (back.source_mac, back.destination_mac) == (SERVER_MAC, CLIENT_MAC)
    assert found.first
    assert not ip_address(back.destination).is_multicast
    assert back.protocol in (TCP, ICMP, ICMPV6)


@settings(deadline=None)
@given(st.binary(max_size=120))
def test_bytes_of_any_kind_are_read_or_refused(text: bytes) -> None:
    for body in (text, frame(TCP, segment(SYN))[: len(text)], frame(UDP, text, v6=True)[: len(text) + 40]):
        for read in (packet, packet_in):
            try:
                found = read(body)
            except Invalid:
                continue
            if isinstance(found, Packet):
                assert found.ports is None or len(found.ports) == 2
                goes_back(found)


@settings(deadline=None)
@given(st.data())
def test_a_packet_with_any_byte_changed_is_read_or_refused(data: st.DataObject) -> None:
    v6 = data.draw(st.booleans())
    text = bytearray(frame(data.draw(st.sampled_from((TCP, UDP, ICMP, ICMPV6, 0, 44))), segment(SYN), v6=v6))
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(12, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = packet(bytes(text))
    except Invalid:
        return
    goes_back(found)
