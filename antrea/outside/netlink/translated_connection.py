"""Connections whose destination the host translates, by the kernel's connection tracking or by IPVS.

Source: linux/netfilter/nfnetlink_conntrack.h, linux/netfilter/nf_conntrack_common.h
"""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.openflow.tracked_connection import HostOriginal
from antrea.outside.netlink.conntrack import FAMILY, GET, NESTED, answers, bodies, is_open, opened, question
from antrea.outside.netlink.ipvs_connection import parse as parse_ipvs
from antrea.outside.netlink.message import ASK, Request, attribute, attributes

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator

    from antrea.openflow.tracked_connection import Key

PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}
_ORIGINAL, _REPLY, _STATUS, _ZONE = 1, 2, 3, 18
_IP, _PROTOCOL = 1, 2
_SOURCE, _DESTINATION = {4: 1, 6: 3}, {4: 2, 6: 4}
_NUMBER, _SOURCE_PORT, _PORT = 1, 2, 3
_DESTINATION_TRANSLATED: Final = 1 << 5


class TranslatedConnection(NamedTuple):
    """Connection with the ends of its first packet."""

    protocol: str
    source: str
    source_port: int
    ip: str
    port: int


def translated_connections() -> Iterator[TranslatedConnection]:
    """Open ones with an answer, of both families, without what a switch tracks in the same table. Blocks; raises Unavailable."""
    for version in (4, 6):
        for body in bodies(question(version, None)):
            if connection := parse(body, version):
                yield connection


def host_originals(keys: Iterable[Key]) -> list[HostOriginal | None]:
    """First packets of connections that the switch has with these keys, as the host got them; None: it tracks none with such answers.

    One query of the kernel's table for each. Blocks; raises Unavailable.
    """
    with opened() as kernel:
        return [_original(kernel, key) for key in keys]


def _original(kernel: socket.socket, key: Key) -> HostOriginal | None:
    bodies = list(answers(kernel, _of_answers(key)))
    if not bodies:
        return None
    ends, version = attributes(attributes(bodies[0][4:]).get(_ORIGINAL, b"")), ip_address(key[3]).version
    ips, numbers = attributes(ends.get(_IP, b"")), attributes(ends.get(_PROTOCOL, b""))
    source, ip = (str(ip_address(ips[kind[version]])) for kind in (_SOURCE, _DESTINATION))
    source_port, port = (int.from_bytes(numbers[kind], "big") for kind in (_SOURCE_PORT, _PORT))
    return HostOriginal(source, source_port, ip, port)


def _of_answers(key: Key) -> Request:
    """For the one connection whose answers come from the server of the key, and go to its source."""
    protocol, client, client_port, server, port, _ = key
    ips = [ip_address(ip) for ip in (server, client)]
    version = ips[0].version
    numbers = attribute(_NUMBER, bytes([protocol]))
    numbers += attribute(_SOURCE_PORT, struct.pack(">H", port))
    numbers += attribute(_PORT, struct.pack(">H", client_port))
    addresses = attribute(_SOURCE[version], ips[0].packed) + attribute(_DESTINATION[version], ips[1].packed)
    ends = attribute(NESTED | _IP, addresses) + attribute(NESTED | _PROTOCOL, numbers)
    head = struct.pack("=BBH", FAMILY[version], 0, 0)
    return Request(GET, ASK, head + attribute(NESTED | _REPLY, ends))


def parse(body: bytes, version: int) -> TranslatedConnection | None:
    """None for any other connection."""
    fields = attributes(body[4:])
    status = int.from_bytes(fields.get(_STATUS, b""), "big")
    if _ZONE in fields or not is_open(fields):
        return None
    if not status & _DESTINATION_TRANSLATED:
        return _by_ipvs(body, version)
    ends = attributes(fields.get(_ORIGINAL, b""))
    ips, protocol = attributes(ends.get(_IP, b"")), attributes(ends.get(_PROTOCOL, b""))
    name = PROTOCOLS.get(int.from_bytes(protocol.get(_NUMBER, b""), "big"))
    if name is None or _SOURCE[version] not in ips or _DESTINATION[version] not in ips:
        return None
    ports = (int.from_bytes(protocol.get(kind, b""), "big") for kind in (_SOURCE_PORT, _PORT))
    source, ip = (str(ip_address(ips[kind[version]])) for kind in (_SOURCE, _DESTINATION))
    source_port, port = ports
    return TranslatedConnection(name, source, source_port, ip, port)


def _by_ipvs(body: bytes, version: int) -> TranslatedConnection | None:
    connection = parse_ipvs(body, version)
    if connection is None or connection.protocol not in PROTOCOLS:
        return None
    (source, source_port), (ip, port) = connection.source, connection.service
    return TranslatedConnection(PROTOCOLS[connection.protocol], str(source), source_port, str(ip), port)
