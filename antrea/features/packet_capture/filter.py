"""The packets that a PacketCapture asks for, as a filter of its socket.

parity: pkg/agent/packetcapture/capture/bpf.go compilePacketFilter; a transport header without a protocol means its own protocol
(upstream reads ports of every protocol then), and one of another protocol is refused.
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING

from antrea.errors import Invalid
from antrea.host.bpf import BYTE, HALF, WORD, All, Any, HeaderLength, Test, program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.crd.packet_capture import (
        CapturePacket,
        IcmpMessages,
        PacketCaptureSpec,
        TcpPorts,
        UdpPorts,
    )
    from antrea.host.bpf import Condition, Instruction

PROTOCOLS = {"UDP": 17, "TCP": 6, "ICMP": 1, "ICMPV6": 58}
ICMP_TYPES = {"icmp-echo": 8, "icmp-echoreply": 0, "icmp-unreach": 3, "icmp-timxceed": 11}
ICMPV6_TYPES = {
    "icmpv6-echo": 128, "icmpv6-echoreply": 129, "icmpv6-unreach": 1, "icmpv6-timxceed": 3,
    "icmpv6-pkt-too-big": 2, "icmpv6-paramprob": 4,
}  # fmt: skip
_ETHERTYPE = 12
_IPV4, _IPV6 = 0x0800, 0x86DD
_IPV4_HEADER, _IPV4_FRAGMENT, _IPV4_PROTOCOL, _IPV4_SOURCE, _IPV4_DESTINATION = 14, 20, 23, 26, 30
_NOT_FIRST = 0x1FFF
"""Bits of the offset of a fragment."""
_IPV6_NEXT, _IPV6_SOURCE, _IPV6_DESTINATION, _IPV6_END = 20, 22, 38, 54
_FRAGMENT_HEADER = 44


def check(spec: PacketCaptureSpec) -> None:
    """Check the spec. Raises Invalid for what no packet can be compared with."""
    _protocol(spec.packet)
    tuple(_messages(spec.packet))
    for name, end in (("source", spec.source), ("destination", spec.destination)):
        if end.ip and (isinstance(ip_address(end.ip), IPv4Address) != (spec.packet.ip_family == "IPv4")):
            raise Invalid(
                f"spec.{name}.ip", f"{end.ip} is not an {spec.packet.ip_family} address, see packet.ipFamily"
            )
    capture_filter(spec, "", "")


def capture_filter(spec: PacketCaptureSpec, source: str, destination: str) -> tuple[Instruction, ...]:
    """The program for these addresses, of which an empty one is any. Raises Invalid."""
    packet = spec.packet
    first = [Test(HALF, _ETHERTYPE, _IPV4 if packet.ip_family == "IPv4" else _IPV6)]
    ways = {
        "SourceToDestination": (_way(packet, source, destination, back=False),),
        "DestinationToSource": (_way(packet, source, destination, back=True),),
        "Both": tuple(_way(packet, source, destination, back=back) for back in (False, True)),
    }[spec.direction]
    try:
        return program(All((*first, *_protocol_test(packet), Any(ways))))
    except ValueError as error:
        raise Invalid("spec.packet.transportHeader", str(error)) from error


def _protocol(packet: CapturePacket) -> int | None:
    """Return the protocol. Raises Invalid."""
    header, named = packet.transport_header, packet.protocol
    implied = next(
        (
            PROTOCOLS[name]
            for name, part in (("TCP", header.tcp), ("UDP", header.udp), ("ICMP", header.icmp), ("ICMPV6", header.icmpv6))
            if part is not None
        ),
        None,
    )  # fmt: skip
    if isinstance(named, str):
        if named.upper() not in PROTOCOLS:
            supported = " ".join(sorted(PROTOCOLS))
            raise Invalid(
                "spec.packet.protocol",
                f"invalid protocol string, supported values are: [{supported}] (case insensitive)",
            )
        named = PROTOCOLS[named.upper()]
    if named is not None and not 0 <= named <= 255:
        raise Invalid("spec.packet.protocol", f"invalid protocol integer: {named}; must be between 0 and 255")
    if None not in (named, implied) and named != implied:
        raise Invalid(
            "spec.packet.transportHeader", f"is of protocol {implied}, but spec.packet.protocol is {named}"
        )
    return implied if named is None else named


def _protocol_test(packet: CapturePacket) -> Iterator[Condition]:
    number = _protocol(packet)
    if number is None:
        return
    if packet.ip_family == "IPv4":
        yield Test(BYTE, _IPV4_PROTOCOL, number)
        return
    direct = Test(BYTE, _IPV6_NEXT, number)
    fragment = All((Test(BYTE, _IPV6_NEXT, _FRAGMENT_HEADER), Test(BYTE, _IPV6_END, number)))
    # what follows the header of a fragment is looked at for its protocol alone, as libpcap does
    yield direct if _has_header_tests(packet) else Any((direct, fragment))


def _way(packet: CapturePacket, source: str, destination: str, *, back: bool) -> All:
    """Make the test of packets from the source to the destination, or back."""
    ends = (destination, source) if back else (source, destination)
    offsets = (
        (_IPV4_SOURCE, _IPV4_DESTINATION) if packet.ip_family == "IPv4" else (_IPV6_SOURCE, _IPV6_DESTINATION)
    )
    addresses = [test for text, at in zip(ends, offsets, strict=True) if text for test in _address(text, at)]
    return All((*addresses, *_transport(packet, back=back)))


def _address(text: str, offset: int) -> Iterator[Test]:
    packed = ip_address(text).packed
    for at in range(0, len(packed), 4):
        yield Test(WORD, offset + at, int.from_bytes(packed[at : at + 4]))


def _has_header_tests(packet: CapturePacket) -> bool:
    header = packet.transport_header
    ports = header.tcp or header.udp
    if ports is not None and (ports.src_port or ports.dst_port):
        return True
    return bool((header.tcp and header.tcp.flags) or tuple(_messages(packet)))


def _transport(packet: CapturePacket, *, back: bool) -> Iterator[Condition]:
    if not _has_header_tests(packet):
        return
    start, after = _IPV6_END, False
    if packet.ip_family == "IPv4":
        start, after = _IPV4_HEADER, True
        yield Test(HALF, _IPV4_FRAGMENT, 0, mask=_NOT_FIRST)
        yield HeaderLength(_IPV4_HEADER)
    header = packet.transport_header
    if ports := header.tcp or header.udp:
        yield from _ports(ports, start, after=after, back=back)
    if header.tcp and header.tcp.flags:
        flags = [(flag.value, flag.value if flag.mask is None else flag.mask) for flag in header.tcp.flags]
        yield Any(tuple(Test(BYTE, start + 13, value, mask, after) for value, mask in flags))
    if messages := tuple(_messages(packet)):
        yield Any(tuple(_message(kind, code, start, after=after) for kind, code in messages))


def _ports(ports: TcpPorts | UdpPorts, start: int, *, after: bool, back: bool) -> Iterator[Test]:
    pair = (ports.dst_port, ports.src_port) if back else (ports.src_port, ports.dst_port)
    for port, at in zip(pair, (start, start + 2), strict=True):
        if port:
            yield Test(HALF, at, port, after_header=after)


def _message(kind: int, code: int | None, start: int, *, after: bool) -> All:
    codes = () if code is None else (Test(BYTE, start + 1, code, after_header=after),)
    return All((Test(BYTE, start, kind, after_header=after), *codes))


def _messages(packet: CapturePacket) -> Iterator[tuple[int, int | None]]:
    """Yield types and codes. Raises Invalid."""
    header = packet.transport_header
    yield from _of_family(header.icmp, "ICMP", ICMP_TYPES)
    yield from _of_family(header.icmpv6, "ICMPv6", ICMPV6_TYPES)


def _of_family(
    messages: IcmpMessages | None, family: str, names: dict[str, int]
) -> Iterator[tuple[int, int | None]]:
    path = f"spec.packet.transportHeader.{family.lower()}.messages"
    for message in messages.messages if messages else ():
        kind = message.type
        if isinstance(kind, str):
            if kind.lower() not in names:
                raise Invalid(
                    path,
                    f'invalid {family} type string: "{kind}"; supported values are: [{" ".join(sorted(names))}]'
                    " (case insensitive)",
                )
            kind = names[kind.lower()]
        elif not 0 <= kind <= 255:
            raise Invalid(path, f"invalid {family} type integer: {kind}; must be between 0 and 255")
        yield kind, message.code
