"""Connections that the host translates to an Egress IP, as short records that another Node can enter into its own table.

A record has the protocol, its state, source and destination of the first packet, their ports, and the port that others see. The
address that others see is not in it. Source: linux/netfilter/nfnetlink_conntrack.h, net/netfilter/nf_conntrack_netlink.c
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final, NamedTuple

from antrea.outside.netlink.conntrack import answers, opened, question
from antrea.outside.netlink.message import attributes

TCP, UDP = 6, 17
OPEN: Final = {TCP: (3, 4, 5), UDP: (0,)}
"""States in which data can come, of protocols that are copied: of TCP ESTABLISHED, FIN_WAIT, CLOSE_WAIT. SCTP would need its verification
tags."""
ESTABLISHED: Final = 3
SEEN, ASSURED, CONFIRMED, SOURCE_TRANSLATED, DESTINATION_TRANSLATED = 2, 4, 8, 16, 32
"""Bits of the status."""
STATUS, PROTOCOL_INFO, ID, ZONE = 3, 4, 12, 18
"""Attributes."""


class Layout(NamedTuple):
    """Offsets in an event or an item of a list of one family, behind the header of netlink."""

    family: int
    size: int
    """Bytes of an address."""
    ends: int
    """Where the tuple of answers begins; that of the first packet begins at 4."""
    rest: int
    """Where attributes begin that are not tuples."""


LAYOUTS: Final = {4: Layout(socket.AF_INET, 4, 56, 108), 6: Layout(socket.AF_INET6, 16, 80, 156)}


def record_of(body: bytes, version: int, state: int) -> tuple[bytes, bytes]:
    """Return the address that others see, and the record, of an event or an item of a list without a zone."""
    size = LAYOUTS[version].size
    source = 16
    target = source + size + 4
    number = target + size + 8
    second = LAYOUTS[version].ends + 12 + size + 4
    record = (
        body[number : number + 1]
        + bytes((state,))
        + body[source : source + size]
        + body[target : target + size]
        + body[number + 8 : number + 10]
        + body[number + 16 : number + 18]
        + body[second + size + 24 : second + size + 26]
    )
    return body[second : second + size], record


def records(ip: str) -> list[bytes]:
    """Return the records of all open connections that others see from an address. Blocks; raises Unavailable."""
    wanted = ip_address(ip)
    packed, version = wanted.packed, wanted.version
    copied = []
    with opened() as kernel:
        for body in answers(kernel, question(version, wanted if version == 4 else None)):
            fields = attributes(body[LAYOUTS[version].rest :])
            status = int.from_bytes(fields.get(STATUS, b""), "big")
            is_copied = status & ASSURED and status & SOURCE_TRANSLATED
            if not is_copied or status & DESTINATION_TRANSLATED or ZONE in fields:
                continue
            protocol = body[16 + 2 * LAYOUTS[version].size + 12]
            state = _state(fields) if protocol == TCP else 0
            if state in OPEN.get(protocol, ()):
                seen, record = record_of(body, version, state)
                if seen == packed:
                    copied.append(record)
    return copied


def _state(fields: dict[int, bytes]) -> int:
    return attributes(attributes(fields.get(PROTOCOL_INFO, b"")).get(1, b"")).get(1, b"\0")[0]
