"""Asks the kernel which addresses of this Node have connections: Egress translates in the host, whichever datapath there is.

Source: linux/netfilter/nfnetlink_conntrack.h, net/netfilter/nf_conntrack_netlink.c
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.outside.netlink.message import ASK_ALL, Request, attribute, attributes, number, replies

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from ipaddress import IPv4Address, IPv6Address

NETFILTER: Final = 12
GET: Final = 1 << 8 | 1
"""Subsystem of connection tracking, IPCTNL_MSG_CT_GET."""
_TUPLE_ORIGINAL, _TUPLE_REPLY, _STATUS, _PROTOCOL_INFO, _FILTER = 1, 2, 3, 4, 25
_TUPLE_IP, _IP_DESTINATION = 1, {4: 2, 6: 4}
_ORIGINAL_FLAGS, _REPLY_FLAGS, _BY_DESTINATION = 1, 2, 1 << 1
_TCP, _TCP_STATE = 1, 1
NESTED: Final = 1 << 15
"""Flag in the number of a nested attribute; without it the kernel refuses the filter."""
FAMILY: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_SEEN_REPLY: Final = 1 << 1
_DESTINATION_TRANSLATED: Final = 1 << 5
_OPEN: Final = {2, 3, 4, 5}
"""States of TCP in which data can come: SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT."""
OPEN_STATES: Final = frozenset(("SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT"))
"""The same by their names."""
_BUFFER: Final = 1 << 18
_TIMEOUT: Final = 5.0
"""Seconds for a part of the answer."""


def connected(addresses: Collection[str], *, to: bool = False, forwarded: bool = False) -> set[str]:
    """Return those addresses that an answered connection uses, as the source that others see, or, with `to`, as where its first packet was sent.

    With `forwarded` connections count whose destination is translated alone. Blocks; raises Unavailable.

    Of one address of IPv4 the kernel is asked for its connections alone, which those before 5.8 do not know to do; by one
    of IPv6 they give all others' (seen of 6.18: it takes addresses that are equal for different ones).
    """
    wanted = {ip_address(text) for text in addresses}
    addresses_in_use: set[IPv4Address | IPv6Address] = set()
    for version in (4, 6):
        family = {ip for ip in wanted if ip.version == version}
        if not family:
            continue
        only = next(iter(family)) if len(family) == 1 and version == 4 else None
        for ip in _destinations(version, only, to=to, forwarded=forwarded):
            if ip in family:
                addresses_in_use.add(ip)
                if family <= addresses_in_use:
                    break
    return {text for text in addresses if ip_address(text) in addresses_in_use}


def question(version: int, only: IPv4Address | IPv6Address | None, *, to: bool = False) -> Request:
    """For the connections of a family, or of one address of it."""
    body = struct.pack("=BBH", FAMILY[version], 0, 0)
    if only is not None:
        by = (_BY_DESTINATION, 0) if to else (0, _BY_DESTINATION)
        flags = number(_ORIGINAL_FLAGS, by[0]) + number(_REPLY_FLAGS, by[1])
        end = attribute(NESTED | _TUPLE_IP, attribute(_IP_DESTINATION[version], only.packed))
        body += attribute(NESTED | _FILTER, flags)
        body += attribute(NESTED | (_TUPLE_ORIGINAL if to else _TUPLE_REPLY), end)
    return Request(GET, ASK_ALL, body)


def destination(
    body: bytes, version: int, *, to: bool = False, forwarded: bool = False
) -> IPv4Address | IPv6Address | None:
    """Where answers of a connection go to, or its first packet; None: nothing more is to come of it, or it has no answer yet."""
    fields = attributes(body[4:])
    if not is_open(fields):
        return None
    if forwarded and not int.from_bytes(fields[_STATUS], "big") & _DESTINATION_TRANSLATED:
        return None
    end = fields.get(_TUPLE_ORIGINAL if to else _TUPLE_REPLY, b"")
    ips = attributes(attributes(end).get(_TUPLE_IP, b""))
    address = ips.get(_IP_DESTINATION[version])
    return ip_address(address) if address else None


def is_open(fields: Mapping[int, bytes]) -> bool:
    """Whether a connection of these attributes has an answer, and more may come."""
    if not int.from_bytes(fields.get(_STATUS, b""), "big") & _SEEN_REPLY:
        return False
    tcp = attributes(attributes(fields.get(_PROTOCOL_INFO, b"")).get(_TCP, b""))
    return _TCP_STATE not in tcp or tcp[_TCP_STATE][0] in _OPEN


def bodies(request: Request) -> Iterator[bytes]:
    """Yield the bodies that the kernel lists, or the one that is requested, if it exists. Raises Unavailable."""
    with opened() as kernel:
        yield from answers(kernel, request)


@contextlib.contextmanager
def opened() -> Iterator[socket.socket]:
    """A socket for any number of requests, one after the other; each waits for 5 s at most."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER) as kernel:
        kernel.settimeout(_TIMEOUT)
        yield kernel


def answers(kernel: socket.socket, request: Request) -> Iterator[bytes]:
    """Yield bodies as `bodies` does. It has to be read to its end before the next request."""
    try:
        kernel.send(request.encode(1))
        while True:
            for reply in replies(kernel.recv(_BUFFER)):
                if reply.errno not in (0, errno.ENOENT):
                    raise Unavailable(f"connections of the kernel cannot be listed: error {reply.errno}")
                if reply.ends:
                    return
                yield reply.body
    except OSError as error:
        raise Unavailable(f"connections of the kernel cannot be listed: {error}") from error


def _destinations(
    version: int, only: IPv4Address | IPv6Address | None, *, to: bool, forwarded: bool
) -> Iterator[IPv4Address | IPv6Address]:
    for body in bodies(question(version, only, to=to)):
        if ip := destination(body, version, to=to, forwarded=forwarded):
            yield ip
