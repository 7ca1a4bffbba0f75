"""Messages of nfnetlink, by which the kernel hands packets to a process: requests, their confirmation, and what is in one.

Source: linux/netfilter/nfnetlink.h, netlink(7)
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING, Final

from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER: Final = struct.Struct("=IHHII")
_BODY: Final = _HEADER.size + 4
_ATTRIBUTE: Final = struct.Struct("=HH")
_REQUEST, _ACK = 1, 4


def request(kind: int, resource: int, *attributes: bytes, acknowledged: bool = False) -> bytes:
    """A message about a group or queue of that number."""
    body = struct.pack("=BBH", socket.AF_UNSPEC, 0, socket.htons(resource)) + b"".join(attributes)
    flags = _REQUEST | _ACK if acknowledged else _REQUEST
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute of a message."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def acknowledge(octets: bytes, what: str) -> None:
    """Read the answer to a request. Raises Refused with `what` and the kernel's error."""
    number = struct.unpack_from("=i", octets, _HEADER.size)[0] if len(octets) >= _BODY else -errno.EPROTO
    if number:
        raise Refused([], f"{what}: {errno.errorcode.get(-number, number)}")


def messages(octets: bytes, kind: int) -> Iterator[dict[int, bytes]]:
    """Attributes of each message of that kind."""
    at = 0
    while at + _BODY <= len(octets):
        length, found, *_ = _HEADER.unpack_from(octets, at)
        if found == kind:
            yield dict(_attributes(octets[at + _BODY : at + length]))
        at += max(_HEADER.size, (length + 3) & ~3)


def _attributes(octets: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(octets):
        length, kind = _ATTRIBUTE.unpack_from(octets, at)
        yield kind, octets[at + _ATTRIBUTE.size : at + length]
        at += max(_ATTRIBUTE.size, (length + 3) & ~3)
