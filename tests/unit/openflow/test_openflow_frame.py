"""Frames that the agent makes are packets that anybody reads: fields where they belong, checksums right."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from antrea.openflow.checksum import checksum
from antrea.openflow.frame import Headers, frame
from antrea.openflow.packet import ICMP, ICMPV6, TCP, UDP, packet

MACS: dict[str, Any] = {"source_mac": "0a:00:00:00:00:07", "destination_mac": "0A:00:00:00:00:08"}
V4: dict[str, Any] = {"source": "10.10.0.7", "destination": "10.10.1.8"}
V6: dict[str, Any] = {"source": "fd00:10::7", "destination": "fd00:10:1::8"}


@pytest.mark.parametrize("ends", [V4, V6])
@pytest.mark.parametrize("protocol", [TCP, UDP, ICMP])
def test_what_headers_say_is_in_the_frame_and_checksums_are_right(
    ends: dict[str, Any], protocol: int
) -> None:
    v6 = ":" in ends["source"]
    protocol = ICMPV6 if v6 and protocol == ICMP else protocol
    headers = Headers(
        **MACS, **ends, protocol=protocol, hops=17, dscp=59, source_port=40000, destination_port=80,
        tcp_flags=0x12, icmp_id=5, icmp_sequence=6,
    )  # fmt: skip
    made = frame(headers)
    read = packet(made)
    assert (made[:6].hex(":"), made[6:12].hex(":")) == ("0a:00:00:00:00:08", "0a:00:00:00:00:07")
    assert (read.source, read.destination, read.ipv6) == (*ends.values(), v6)
    assert (read.protocol, read.hops, read.dscp) == (protocol, 17, 59)
    assert read.length == len(made) - 14
    if protocol in (TCP, UDP):
        assert read.ports == (40000, 80)
    else:
        assert read.payload[0] == (128 if v6 else 8)
        assert (read.payload[4:6], read.payload[6:8]) == (b"\0\5", b"\0\6")
    if protocol == TCP:
        assert read.payload[13] == 0x12
    if not v6:
        assert checksum(read.header) == 0
    packed = ip_address(read.source).packed + ip_address(read.destination).packed
    beside = packed + len(read.payload).to_bytes(4) + protocol.to_bytes(4)
    assert checksum((b"" if protocol == ICMP else beside) + read.payload) == 0


def test_the_flags_of_fragments_are_those_of_ipv4() -> None:
    made = packet(frame(Headers(**MACS, **V4, protocol=UDP, fragment_flags=2)))
    assert (made.fragment_flags, made.first) == (2, True)
    assert packet(frame(Headers(**MACS, **V6, protocol=UDP, fragment_flags=2))).fragment_flags == 0


def test_another_protocol_has_no_payload() -> None:
    read = packet(frame(Headers(**MACS, **V4, protocol=89)))
    assert (read.protocol, read.payload, read.length) == (89, b"", 20)
