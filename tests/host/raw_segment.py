"""Raw sockets of TCP in namespaces of a test, and the next segment that they, or the tunnel, receive."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from egress_node import FAMILIES

from antrea.openflow.packet import packet

PORT, SERVED = 4444, 8099
"""Ports of the connection: of its client and of its server."""
ACK, RST, SYN, FIN = 0x10, 0x04, 0x02, 0x01


class Segment(NamedTuple):
    source: str
    ports: tuple[int, int]
    sequence: int
    flags: int


def raw(version: int) -> socket.socket:
    one = socket.socket(FAMILIES[version], socket.SOCK_RAW, socket.IPPROTO_TCP)
    one.settimeout(30)
    return one


def heard(link: socket.socket, version: int) -> Segment:
    """The next segment of TCP with that port; an IPv4 socket shows its header, too."""
    while True:
        data, who = link.recvfrom(2000)
        body = data[4 * (data[0] & 15) :] if version == 4 else data
        found = read(who[0], body)
        if {PORT, SERVED} & {*found.ports}:
            return found


def read(source: str, body: bytes) -> Segment:
    """A segment as it came."""
    one, other, sequence, _, _, flags = struct.unpack("!HHIIBB", body[:14])
    return Segment(source, (one, other), sequence, flags)


def carried(peer: socket.socket) -> tuple[bytes, Segment]:
    """The next segment of that connection that the tunnel carries to the other Node, and its source MAC."""
    while True:
        data = peer.recv(2000)
        if data[12:14] in (b"\x08\x00", b"\x86\xdd"):
            found = packet(data)
            if found.protocol == socket.IPPROTO_TCP and PORT in read("", found.payload).ports:
                return data, read(found.source, found.payload)
