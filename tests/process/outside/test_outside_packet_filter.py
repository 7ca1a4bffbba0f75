"""The filters of PacketCapture in the kernel, against those of tcpdump for the same words, packet by packet."""

from __future__ import annotations

import ctypes
import random
import shutil
import socket
import struct
import subprocess
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.apis.crd.packet_capture import PacketCaptureSpec
from antrea.features.packet_capture.filter import capture_filter
from antrea.host.bpf import Instruction

if TYPE_CHECKING:
    from collections.abc import Iterator

SO_ATTACH_FILTER = 26
A4, B4, A6, B6 = "10.0.0.4", "10.0.0.5", "fd00::4", "fd00::5"
ICMP6 = "(ip6[6] == 58 or (ip6[6] == 44 and ip6[40] == 58))"
TCP80 = {"protocol": "TCP", "transportHeader": {"tcp": {"dstPort": 80}}}


def flags(*pairs: tuple[int, int | None]) -> dict[str, Any]:
    found = [{"value": value} if mask is None else {"value": value, "mask": mask} for value, mask in pairs]
    return {"transportHeader": {"tcp": {"flags": found}}}


def icmp(family: str, *messages: dict[str, Any]) -> dict[str, Any]:
    return {"transportHeader": {family: {"messages": list(messages)}}}


V6 = {"ipFamily": "IPv6"}
CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("ip", {}, "", "", "SourceToDestination"),
    ("ip6", V6, "", "", "SourceToDestination"),
    ("ip proto 17", {"protocol": "udp"}, "", "", "SourceToDestination"),
    ("ip proto 47", {"protocol": 47}, "", "", "Both"),
    (f"ip and src host {A4} and dst host {B4}", {}, A4, B4, "SourceToDestination"),
    (f"ip and src host {B4} and dst host {A4}", {}, A4, B4, "DestinationToSource"),
    (f"ip and ((src host {A4} and dst host {B4}) or (src host {B4} and dst host {A4}))", {}, A4, B4, "Both"),
    (f"ip and (src host {A4} or dst host {A4})", {}, A4, "", "Both"),
    (f"ip proto 6 and dst host {B4} and dst port 80", TCP80, "", B4, "SourceToDestination"),
    (f"ip proto 6 and src host {B4} and src port 80", TCP80, "", B4, "DestinationToSource"),
    (
        (
            f"ip proto 6 and ((src host {A4} and dst host {B4} and dst port 80)"
            f" or (src host {B4} and dst host {A4} and src port 80))"
        ),
        TCP80, A4, B4, "Both",
    ),
    ("ip proto 17 and src port 53", {"transportHeader": {"udp": {"srcPort": 53}}}, "", "", "SourceToDestination"),
    ("ip proto 6 and tcp[13] & 2 == 2", flags((2, None)), "", "", "SourceToDestination"),
    ("ip proto 6 and (tcp[13] & 18 == 2 or tcp[13] & 4 == 4)", flags((2, 18), (4, 4)), "", "", "SourceToDestination"),
    (
        "ip proto 1 and (icmp[0] == 8 or (icmp[0] == 3 and icmp[1] == 1))",
        icmp("icmp", {"type": "ICMP-Echo"}, {"type": 3, "code": 1}), "", "", "SourceToDestination",
    ),
    (f"ip6 and {ICMP6}", {**V6, "protocol": "ICMPv6"}, "", "", "SourceToDestination"),
    (
        f"ip6 and ip6[6] == 58 and ip6[40] == 128 and src host {A6} and dst host {B6}",
        {**V6, **icmp("icmpv6", {"type": "icmpv6-echo"})}, A6, B6, "SourceToDestination",
    ),
    (
        (
            f"ip6 and ip6[6] == 6 and ((src host {A6} and dst host {B6} and ip6[42:2] == 80)"
            f" or (src host {B6} and dst host {A6} and ip6[40:2] == 80))"
        ),
        {**V6, **TCP80}, A6, B6, "Both",
    ),
]  # fmt: skip


def spec(packet: dict[str, Any], direction: str) -> PacketCaptureSpec:
    body = {"captureConfig": {"firstN": {"number": 1}}, "packet": packet, "direction": direction}
    return msgspec.convert(body, PacketCaptureSpec)


class Kernel:
    """A pair of sockets whose receiver runs a program on each datagram."""

    def __init__(self, program: tuple[Instruction, ...]) -> None:
        self._sender, self._receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        code = b"".join(struct.pack("=HBBI", *line) for line in program)
        held = ctypes.create_string_buffer(code, len(code))
        filled = struct.pack("HL", len(program), ctypes.addressof(held))
        self._receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filled)
        self._receiver.setblocking(False)

    def keeps(self, packet: bytes) -> bool:
        try:
            self._sender.send(packet)
            return bool(self._receiver.recv(65536))
        except (BlockingIOError, PermissionError):
            return False

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()


def tcpdump(words: str) -> tuple[Instruction, ...]:
    done = subprocess.run(
        ["tcpdump", "-y", "EN10MB", "-ddd", words], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return tuple(Instruction(*map(int, line.split())) for line in done.stdout.splitlines()[1:])


def packets(seed: int, count: int) -> Iterator[bytes]:
    """Of both families, near to what the filters look for: each field is right more often than not."""
    chance = random.Random(seed)
    for _ in range(count):
        transport = bytearray(chance.randbytes(24))
        transport[:4] = struct.pack("!HH", chance.choice((80, 53, 4000)), chance.choice((80, 53, 4000)))
        if chance.random() < 0.5:
            transport[:2] = bytes((chance.choice((8, 3, 0, 128, 58)), chance.choice((0, 1))))
        transport[13] = chance.choice((2, 18, 16, 4, 20))
        yield chance.choice((ipv4, ipv4, ipv6))(chance, bytes(transport))


def ends(chance: random.Random, one: str, other: str, third: str) -> bytes:
    return b"".join(ip_address(chance.choice((one, other, one, other, third))).packed for _ in range(2))


def ipv4(chance: random.Random, transport: bytes) -> bytes:
    options = chance.choice((0, 0, 2))
    fragment = chance.choice((0, 0, 0, 0x4000, 0x2000, 7))
    head = struct.pack(
        "!BBHHHBBH", 0x45 + options, 0, 20 + 4 * options + len(transport), 1, fragment, 64,
        chance.choice((1, 6, 17, 6, 1, 47)), 0,
    )  # fmt: skip
    kind = struct.pack("!H", chance.choice((0x800, 0x800, 0x800, 0x806)))
    return bytes(12) + kind + head + ends(chance, A4, B4, "10.0.0.6") + bytes(4 * options) + transport


def ipv6(chance: random.Random, transport: bytes) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, len(transport), chance.choice((6, 17, 58, 58, 44)), 64)
    return bytes(12) + b"\x86\xdd" + head + ends(chance, A6, B6, "fd00::6") + transport


@pytest.mark.skipif(not shutil.which("tcpdump"), reason="tcpdump is not installed")
@pytest.mark.parametrize("case", CASES, ids=[case[0][:60] for case in CASES])
def test_the_kernel_keeps_the_packets_that_tcpdump_means(
    case: tuple[str, dict[str, Any], str, str, str],
) -> None:
    words, packet, source, destination, direction = case
    ours = Kernel(capture_filter(spec(packet, direction), source, destination))
    theirs = Kernel(tcpdump(words))
    try:
        verdicts = [(ours.keeps(one), theirs.keeps(one)) for one in packets(7, 4000)]
    finally:
        ours.close()
        theirs.close()
    assert all(one == other for one, other in verdicts)
    assert 0 < sum(one for one, _ in verdicts) < len(verdicts), "a filter that decides nothing proves nothing"


def test_a_long_list_of_messages_is_one_filter_and_one_that_is_too_long_is_refused() -> None:
    def of(count: int) -> dict[str, Any]:
        return {**V6, **icmp("icmpv6", *({"type": 128, "code": 9} for _ in range(count)))}

    many = Kernel(capture_filter(spec(of(150), "Both"), A6, B6))
    many.close()
    with pytest.raises(
        Exception, match=r"transportHeader: a filter of \d+ instructions, of which the kernel takes 4096"
    ):
        capture_filter(spec(of(4096), "Both"), A6, B6)
