"""What strangers send is read or refused, whatever it is: half a million packets with bytes changed, cut and put in."""

from __future__ import annotations

import os
import random
import struct
from ipaddress import ip_address

import pytest

from antrea.errors import Invalid
from antrea.openflow.packet import Packet, packet
from antrea.openflow.packet_in import packet_in
from antrea.openflow.rejection import answer

EXECUTIONS = 500_000
SEED = int(os.environ.get("FUZZ_SEED", "6"))
MACS = b"\x0a" * 6, b"\x0b" * 6


def corpus() -> list[bytes]:
    """A frame of each protocol and family, some with options and fragments, and packet-ins with these in them."""
    frames = []
    for protocol in (6, 17, 132, 1, 58, 0, 43, 44, 60, 2):
        for v6 in (False, True):
            ends = b"".join(ip_address(f"fd00::{n}" if v6 else f"10.0.0.{n}").packed for n in (1, 2))
            body = struct.pack("!HHIIBBHHH", 4000, 80, 1, 0, 0x50, 2, 0, 0, 0) + b"data"
            if v6:
                head = struct.pack("!IHBB", 6 << 28, len(body), protocol, 64) + ends
            else:
                options = b"\x94\x04\0\0" * (protocol % 3)
                first = 0x45 + len(options) // 4
                length = 20 + len(options) + len(body)
                head = struct.pack("!BBHHHBBH", first, 0, length, 7, 0, 64, protocol, 0) + ends + options
            frames.append(b"\0" * 12 + (b"\x86\xdd" if v6 else b"\x08\0") + head + body)
    fields = struct.pack("!HBBI", 0x8000, 0, 4, 7) + struct.pack("!HBBQQ", 0x8001, 1, 16, 1 << 40, 0xFF << 32)
    parts = ((0, frames[0]), (3, b"\x1d"), (6, fields), (7, b"\x01\x02"))
    message = b"".join(
        struct.pack("!HH", kind, 4 + len(value)) + value + b"\0" * (-(4 + len(value)) % 8)
        for kind, value in parts
    )
    return [*frames, message]


def changed(rnd: random.Random, text: bytes) -> bytes:
    """With some bytes of it other ones, cut off or put in."""
    found = bytearray(text)
    for _ in range(rnd.randrange(1, 6)):
        at = rnd.randrange(len(found) + 1)
        way = rnd.randrange(4)
        if way == 0:
            del found[at:]
        elif way == 1:
            found[at:at] = rnd.randbytes(rnd.randrange(1, 9))
        elif at < len(found):
            found[at] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))
    return bytes(found)


@pytest.mark.wide
@pytest.mark.timeout(3600)
def test_wide_packets_are_read_or_refused_and_nothing_else() -> None:
    rnd, seeds = random.Random(SEED), corpus()
    read = refused = answered = 0
    for _ in range(EXECUTIONS):
        text = changed(rnd, rnd.choice(seeds))
        for parse in (packet, packet_in):
            try:
                found = parse(text)
            except Invalid:
                refused += 1
                continue
            read += 1
            if isinstance(found, Packet):
                answered += answer(found, *MACS) is not None
    print(
        f"seed {SEED}: {EXECUTIONS} executions over a corpus of {len(seeds)}: {read} read, {refused} refused, {answered} answered"
    )
    assert min(read, refused, answered) > EXECUTIONS / 100
