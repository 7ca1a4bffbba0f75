"""Virtual servers of IPVS: which there are, and their removal.

Source: linux/ip_vs.h, net/netfilter/ipvs/ip_vs_ctl.c, linux/genetlink.h
"""

from __future__ import annotations

import re
import socket
import struct
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.outside.netlink.message import ASK, Request, attribute, attributes, string
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLE: Final = Path("/proc/thread-self/net/ip_vs")
"""Only where the module is loaded; to ask by netlink would load it."""
PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "SCTP": 132}
_LINE: Final = re.compile(r"(TCP|UDP|SCTP) +(?:([0-9A-F]{8})|\[([0-9a-f:.]+)\]):([0-9A-F]{4}) ")
_GENERIC: Final = 16
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_DELETE_SERVICE, _SERVICE = 3, 1
_FAMILY, _PROTOCOL, _ADDRESS, _PORT = 1, 2, 3, 4
_ADDRESS_OCTETS: Final = 16
"""Size of an address of either family."""
_MAX_BATCH: Final = 64
"""Deletions whose answers the socket has room for."""


class VirtualServer(NamedTuple):
    """Where IPVS takes connections; those that are known by a firewall mark are left out."""

    protocol: str
    ip: str
    port: int


def virtual_servers() -> list[VirtualServer]:
    """All of this network namespace. Raises OSError."""
    try:
        return list(parse(TABLE.read_text()))
    except FileNotFoundError:
        return []


def parse(table: str) -> Iterator[VirtualServer]:
    """Virtual servers of /proc/net/ip_vs; real ones are indented."""
    for line in table.splitlines():
        if match := _LINE.match(line):
            protocol, four, six, port = match.groups()
            ip = ip_address(bytes.fromhex(four)) if four else ip_address(six)
            yield VirtualServer(protocol, str(ip), int(port, 16))


def connection_servers(table: str) -> Iterator[VirtualServer]:
    """Virtual servers of the connections in /proc/net/ip_vs_conn, without what only keeps a client's choice."""
    for line in table.splitlines()[1:]:
        protocol, _, source_port, address, port, *_ = line.split()
        if protocol in PROTOCOLS and int(source_port, 16):
            ip = ip_address(address if ":" in address else bytes.fromhex(address))
            yield VirtualServer(protocol, str(ip), int(port, 16))


def delete_virtual_servers(servers: Iterable[VirtualServer]) -> None:
    """Connections through them end. Raises OSError about the first that cannot be deleted."""
    wanted = list(servers)
    if not wanted:
        return
    with Rtnl(_GENERIC) as kernel:
        head = struct.pack("=BBH", _GET_FAMILY, 1, 0)
        (about,) = kernel.ask(Request(_CONTROL, ASK, head + string(_FAMILY_NAME, "IPVS")))
        number = int.from_bytes(attributes(about.body[4:])[_FAMILY_ID], sys.byteorder)
        for at in range(0, len(wanted), _MAX_BATCH):
            kernel.ask(*(_deletion(number, server) for server in wanted[at : at + _MAX_BATCH]))


def _deletion(number: int, server: VirtualServer) -> Request:
    ip = ip_address(server.ip)
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    which = attribute(_FAMILY, struct.pack("=H", family))
    which += attribute(_PROTOCOL, struct.pack("=H", PROTOCOLS[server.protocol]))
    which += attribute(_ADDRESS, ip.packed.ljust(_ADDRESS_OCTETS, b"\0"))
    which += attribute(_PORT, server.port.to_bytes(2, "big"))
    return Request(
        number, ASK, struct.pack("=BBH", _DELETE_SERVICE, 1, 0) + attribute(_SERVICE | 1 << 15, which)
    )
