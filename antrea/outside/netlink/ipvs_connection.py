"""Connections that IPVS translates, and how the kernel's connection tracking continues them when IPVS no longer does.

IPVS changes the answers that connection tracking expects, and leaves the entry without a translation of its own
(net.ipv4.vs.conntrack, which kube-proxy sets). An entry with that translation in its place needs no IPVS: it is as if a rule
of the packet filter had made it. The kernel does not let the translation of an entry be changed, so it is made anew.
Source: linux/netfilter/nfnetlink_conntrack.h, net/netfilter/nf_conntrack_netlink.c, net/netfilter/ipvs/ip_vs_nfct.c
"""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.outside.netlink.conntrack import FAMILY, NETFILTER, bodies, is_open, question
from antrea.outside.netlink.message import ASK, NEW, Request, attribute, attributes
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_NEW, _DELETE = 1 << 8, 1 << 8 | 2
"""Subsystem of connection tracking, IPCTNL_MSG_CT_NEW and IPCTNL_MSG_CT_DELETE."""
_ORIGINAL, _REPLY, _STATUS, _PROTOCOL_INFO, _TIMEOUT, _MARK, _ZONE = 1, 2, 3, 4, 7, 8, 18
_SOURCE_TRANSLATION, _DESTINATION_TRANSLATION = 6, 13
_IP, _PROTOCOL = 1, 2
_SOURCE, _DESTINATION = {4: 1, 6: 3}, {4: 2, 6: 4}
_NUMBER, _SOURCE_PORT, _PORT = 1, 2, 3
_MIN_VALUE, _MAX_VALUE, _PORTS = {4: 1, 6: 4}, {4: 2, 6: 5}, 3
_MIN_PORT, _MAX_PORT = 1, 2
_NESTED: Final = 1 << 15
_TCP, _FLAGS = 1, (4, 5)
_LIBERAL: Final = b"\x08\x08"
"""Windows, which the kernel does not list, do not count: flag and mask, for each direction."""
_SEEN, _ASSURED, _CONFIRMED, _DESTINATION_TRANSLATED = 1 << 1, 1 << 2, 1 << 3, 1 << 5

Address = IPv4Address | IPv6Address
End = tuple[Address, int]
"""Address and port."""
Ends = tuple[int, str, int, str, int]
"""Number of the protocol, source and its port, destination and its port."""


class IpvsConnection(NamedTuple):
    """Connection with the ends of its first packet, and their translation by IPVS."""

    protocol: int
    source: End
    service: End
    endpoint: End
    answered: End
    """Where the Endpoint sends answers: `source`, or what the host made of it."""
    state: bytes
    """State of the protocol, as the kernel listed it."""
    timeout: int
    mark: int


def ipvs_connections() -> Iterator[IpvsConnection]:
    """Open ones with an answer, of both families. Blocks; raises Unavailable."""
    for version in (4, 6):
        for body in bodies(question(version, None)):
            if connection := parse(body, version):
                yield connection


def parse(body: bytes, version: int) -> IpvsConnection | None:
    """None for any other connection."""
    fields = attributes(body[4:])
    status = int.from_bytes(fields.get(_STATUS, b""), "big")
    if _ZONE in fields or status & _DESTINATION_TRANSLATED or not is_open(fields):
        return None
    try:
        protocol, source, service = _ends(fields[_ORIGINAL], version)
        _, endpoint, answered = _ends(fields[_REPLY], version)
    except KeyError:
        return None  # ICMP has no ports
    if endpoint == service:
        return None
    timeout, mark = (int.from_bytes(fields.get(kind, b""), "big") for kind in (_TIMEOUT, _MARK))
    state = fields.get(_PROTOCOL_INFO, b"")
    return IpvsConnection(protocol, source, service, endpoint, answered, state, timeout, mark)


def stay_as_they_are(addresses: Collection[str]) -> bool:
    """Whether an open connection that is not translated here goes to one of these. Blocks; raises Unavailable."""
    wanted = {ip_address(address) for address in addresses}
    for version in {address.version for address in wanted}:
        for body in bodies(question(version, None)):
            fields = attributes(body[4:])
            try:
                _, _, service = _ends(fields[_ORIGINAL], version)
                _, server, _ = _ends(fields[_REPLY], version)
            except KeyError:
                continue
            if _ZONE not in fields and is_open(fields) and server == service and service[0] in wanted:
                return True
    return False


def tracked_ends() -> set[Ends]:
    """Return the ends of all connections as their first packets were, and as the host has translated these, without what a switch tracks in the same table.

    Blocks; raises Unavailable.
    """
    known = set()
    for version in (4, 6):
        for body in bodies(question(version, None)):
            fields = attributes(body[4:])
            with suppress(KeyError):  # ICMP has no ports
                protocol, source, service = _ends(fields[_ORIGINAL], version)
                _, server, answered = _ends(fields[_REPLY], version)
                if _ZONE not in fields:
                    known.add((protocol, str(source[0]), source[1], str(service[0]), service[1]))
                    known.add((protocol, str(answered[0]), answered[1], str(server[0]), server[1]))
    return known


def translate_by_tracking(connections: Iterable[IpvsConnection]) -> None:
    """Give each an entry that translates by itself. Raises OSError about the first that is refused; others are made."""
    refused: OSError | None = None
    with Rtnl(NETFILTER) as kernel:
        for connection in connections:
            try:
                _make(kernel, connection)
            except OSError as error:
                refused = refused or error
    if refused:
        raise refused


def _make(kernel: Rtnl, connection: IpvsConnection) -> None:
    try:
        kernel.ask(creation(connection))
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        kernel.ask(
            Request(
                _DELETE,
                ASK,
                _head(connection) + _tuple(_ORIGINAL, connection, connection.source, connection.service),
            )
        )
        kernel.ask(creation(connection))


def creation(connection: IpvsConnection) -> Request:
    """The kernel turns the second tuple into what the translations make of it."""
    body = _head(connection) + _tuple(_ORIGINAL, connection, connection.source, connection.service)
    body += _tuple(_REPLY, connection, connection.service, connection.source)
    body += _translation(_DESTINATION_TRANSLATION, connection.endpoint)
    if connection.answered != connection.source:
        body += _translation(_SOURCE_TRANSLATION, connection.answered)
    body += _number(_STATUS, _SEEN | _ASSURED | _CONFIRMED) + _number(_TIMEOUT, connection.timeout)
    if connection.mark:
        body += _number(_MARK, connection.mark)
    if connection.state:
        body += attribute(_NESTED | _PROTOCOL_INFO, _state(attributes(connection.state)))
    return Request(_NEW, NEW, body)


def _state(fields: Mapping[int, bytes]) -> bytes:
    """Return the state of a protocol, which is nested in it."""
    return b"".join(attribute(_NESTED | kind, _fields(kind, data)) for kind, data in fields.items())


def _fields(kind: int, data: bytes) -> bytes:
    if kind != _TCP:
        return data
    fields = attributes(data) | dict.fromkeys(_FLAGS, _LIBERAL)
    return b"".join(attribute(*row) for row in fields.items())


def _head(connection: IpvsConnection) -> bytes:
    return struct.pack("=BBH", FAMILY[connection.service[0].version], 0, 0)


def _ends(data: bytes, version: int) -> tuple[int, End, End]:
    """Protocol, source and destination of a tuple. Raises KeyError."""
    both = attributes(data)
    ips, protocol = attributes(both[_IP]), attributes(both[_PROTOCOL])
    source, destination = (ip_address(ips[kind[version]]) for kind in (_SOURCE, _DESTINATION))
    source_port, port = (int.from_bytes(protocol[kind], "big") for kind in (_SOURCE_PORT, _PORT))
    return protocol[_NUMBER][0], (source, source_port), (destination, port)


def _tuple(kind: int, connection: IpvsConnection, source: End, destination: End) -> bytes:
    version = destination[0].version
    ips = attribute(_SOURCE[version], source[0].packed) + attribute(
        _DESTINATION[version], destination[0].packed
    )
    protocol = attribute(_NUMBER, bytes([connection.protocol]))
    protocol += _port(_SOURCE_PORT, source[1]) + _port(_PORT, destination[1])
    both = attribute(_NESTED | _IP, ips) + attribute(_NESTED | _PROTOCOL, protocol)
    return attribute(_NESTED | kind, both)


def _translation(kind: int, to: End) -> bytes:
    ip, port = to
    body = attribute(_MIN_VALUE[ip.version], ip.packed) + attribute(_MAX_VALUE[ip.version], ip.packed)
    body += attribute(_NESTED | _PORTS, _port(_MIN_PORT, port) + _port(_MAX_PORT, port))
    return attribute(_NESTED | kind, body)


def _port(kind: int, value: int) -> bytes:
    return attribute(kind, value.to_bytes(2, "big"))


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, value.to_bytes(4, "big"))


def key(connection: IpvsConnection) -> Iterator[str]:
    """Both directions, as an element of a set of nftables has them: protocol, source, its port, destination, its port."""
    for source, destination in (
        (connection.source, connection.service),
        (connection.endpoint, connection.answered),
    ):
        yield " . ".join(str(part) for part in (connection.protocol, *source, *destination))
