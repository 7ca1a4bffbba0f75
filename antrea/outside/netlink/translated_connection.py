"""Connections whose destination the host translates, by the kernel's connection tracking or by IPVS.

Source: linux/netfilter/nfnetlink_conntrack.h, linux/netfilter/nf_conntrack_common.h
"""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.outside.netlink.conntrack import FAMILY, GET, NESTED, bodies, is_open, question
from antrea.outside.netlink.ipvs_connection import parse as parse_ipvs
from antrea.outside.netlink.message import ASK, Request, attribute, attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}
_ORIGINAL, _REPLY, _STATUS, _ZONE = 1, 2, 3, 18
_IP, _PROTOCOL = 1, 2
_SOURCE, _DESTINATION = {4: 1, 6: 3}, {4: 2, 6: 4}
_NUMBER, _SOURCE_PORT, _PORT = 1, 2, 3
_DESTINATION_TRANSLATED: Final = 1 << 5


class TranslatedConnection(NamedTuple):
    """As its first packet had it."""

    protocol: str
    source: str
    source_port: int
    ip: str
    port: int


def translated_connections() -> Iterator[TranslatedConnection]:
    """Open ones with an answer, of both families, without what a switch tracks in the same table. Blocks; raises Unavailable."""
    for version in (4, 6):
        for body in bodies(question(version, None)):
            if found := parse(body, version):
                yield found


def asked_address(protocol: int, client: tuple[str, int], server: tuple[str, int]) -> tuple[str, int] | None:
    """Where the first packet of a connection was sent to that `server` answers; None: none is tracked. Blocks; raises Unavailable."""
    for body in bodies(_of_answers(protocol, server, client)):
        ends = attributes(attributes(body[4:]).get(_ORIGINAL, b""))
        version = ip_address(server[0]).version
        ip = attributes(ends.get(_IP, b"")).get(_DESTINATION[version])
        port = attributes(ends.get(_PROTOCOL, b"")).get(_PORT, b"")
        if ip:
            return str(ip_address(ip)), int.from_bytes(port, "big")
    return None


def _of_answers(protocol: int, source: tuple[str, int], destination: tuple[str, int]) -> Request:
    """For the one connection whose answers have these ends."""
    ips = [ip_address(end[0]) for end in (source, destination)]
    version = ips[0].version
    numbers = attribute(_NUMBER, bytes([protocol]))
    numbers += attribute(_SOURCE_PORT, struct.pack(">H", source[1]))
    numbers += attribute(_PORT, struct.pack(">H", destination[1]))
    addresses = attribute(_SOURCE[version], ips[0].packed) + attribute(_DESTINATION[version], ips[1].packed)
    ends = attribute(NESTED | _IP, addresses) + attribute(NESTED | _PROTOCOL, numbers)
    head = struct.pack("=BBH", FAMILY[version], 0, 0)
    return Request(GET, ASK, head + attribute(NESTED | _REPLY, ends))


def parse(body: bytes, version: int) -> TranslatedConnection | None:
    """None for any other connection."""
    found = attributes(body[4:])
    status = int.from_bytes(found.get(_STATUS, b""), "big")
    if _ZONE in found or not is_open(found):
        return None
    if not status & _DESTINATION_TRANSLATED:
        return _by_ipvs(body, version)
    ends = attributes(found.get(_ORIGINAL, b""))
    ips, protocol = attributes(ends.get(_IP, b"")), attributes(ends.get(_PROTOCOL, b""))
    name = PROTOCOLS.get(int.from_bytes(protocol.get(_NUMBER, b""), "big"))
    if name is None or _SOURCE[version] not in ips or _DESTINATION[version] not in ips:
        return None
    ports = (int.from_bytes(protocol.get(kind, b""), "big") for kind in (_SOURCE_PORT, _PORT))
    source, ip = (str(ip_address(ips[kind[version]])) for kind in (_SOURCE, _DESTINATION))
    source_port, port = ports
    return TranslatedConnection(name, source, source_port, ip, port)


def _by_ipvs(body: bytes, version: int) -> TranslatedConnection | None:
    one = parse_ipvs(body, version)
    if one is None or one.protocol not in PROTOCOLS:
        return None
    (source, source_port), (ip, port) = one.source, one.service
    return TranslatedConnection(PROTOCOLS[one.protocol], str(source), source_port, str(ip), port)
