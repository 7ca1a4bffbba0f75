"""Ports at which programs of the host listen, from the tables of sockets in /proc.

Source: Linux, net/ipv4/tcp_ipv4.c get_tcp4_sock, net/ipv4/udp.c, net/sctp/proc.c
"""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

NET: Final = Path("/proc/thread-self/net")
RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LISTEN, UNCONNECTED = "0A", "07"
"""States of TCP sockets that listen and of UDP sockets without a peer."""
MAX_PORTS: Final = 65_536
"""More sockets than these are not read."""


def listening_ports(net: Path = NET, local_range: Path = RANGE) -> Iterator[tuple[str, str, int]]:
    """Protocol, address and port; of UDP without the ports that the kernel gives to clients. Raises Unavailable."""
    try:
        low, high = map(int, local_range.read_text().split())
        for name, protocol, state in (("tcp", "TCP", LISTEN), ("udp", "UDP", UNCONNECTED)):
            for version in ("", "6"):
                for ip, port in _sockets(net / f"{name}{version}", state):
                    if protocol == "TCP" or not low <= port <= high:
                        yield protocol, ip, port
        yield from (("SCTP", "", port) for port in _endpoints(net / "sctp" / "eps"))
    except (OSError, ValueError) as error:
        raise Unavailable(f"the table of listening sockets cannot be read: {error}") from error


def _sockets(table: Path, state: str) -> Iterator[tuple[str, int]]:
    """Yield the sockets in this state. The kernel lists listening TCP sockets before all others, which are not read."""
    if not table.exists():
        return  # the kernel has no IPv6
    with table.open() as lines:
        next(lines, "")
        for number, line in enumerate(lines):
            _, local, _, found_state, *_ = line.split(maxsplit=4)
            if found_state == state:
                address, _, port = local.partition(":")
                yield _address(address), int(port, 16)
            elif state == LISTEN or number >= MAX_PORTS:
                return


def _address(text: str) -> str:
    """The kernel writes words of 32 bits in the order of the machine. Empty for all addresses of both families."""
    groups = (int(text[start : start + 8], 16) for start in range(0, len(text), 8))
    packed = b"".join(struct.pack("=I", word) for word in groups)
    if not any(packed):
        return "0.0.0.0" if len(packed) == 4 else ""  # noqa: S104 (what the kernel says)
    if packed.startswith(bytes(10) + b"\xff\xff"):
        return socket.inet_ntoa(packed[12:])
    return str(ip_address(packed))


def _endpoints(table: Path) -> Iterator[int]:
    """Ports of SCTP; the column after the state of a listening socket, at whichever address."""
    if not table.exists():
        return
    with table.open() as lines:
        column = next(lines, "").split().index("LPORT")
        for line in lines:
            yield int(line.split()[column])
