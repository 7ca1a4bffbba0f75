"""Messages of nfnetlink, by which the kernel hands packets and elements of sets to a process: requests, their answers, and what is in one.

Source: linux/netfilter/nfnetlink.h, netlink(7)
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING, Final

from antrea.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER: Final = struct.Struct("=IHHII")
_BODY: Final = _HEADER.size + 4
_ATTRIBUTE: Final = struct.Struct("=HH")
_REQUEST, _ACK, _INTERRUPTED, _DUMP = 1, 4, 0x10, 0x300
_ERROR, _DONE = 2, 3


def request(kind: int, resource: int, *attributes: bytes, acknowledged: bool = False) -> bytes:
    """A message about a group or queue of that number."""
    body = struct.pack("=BBH", socket.AF_UNSPEC, 0, socket.htons(resource)) + b"".join(attributes)
    flags = _REQUEST | _ACK if acknowledged else _REQUEST
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def dump_request(kind: int, family: int, attributes: bytes) -> bytes:
    """A message that asks for all there is of something."""
    body = struct.pack("=BBH", family, 0, 0) + attributes
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _DUMP, 1, 0) + body


def dumped(data: bytes, what: str) -> tuple[bool, bool]:
    """Check a part of the answer: whether nothing has changed since its first one, and whether it is the last one.

    Raises Unavailable with `what` and the kernel's error.
    """
    at, complete, ended = 0, True, False
    while at + _BODY <= len(data):
        length, kind, flags, *_ = _HEADER.unpack_from(data, at)
        complete, ended = complete and not flags & _INTERRUPTED, ended or kind == _DONE
        failed = struct.unpack_from("=i", data, at + _HEADER.size)[0] if kind in (_ERROR, _DONE) else 0
        if failed:
            raise Unavailable(f"{what}: {errno.errorcode.get(-failed, failed)}")
        at += max(_HEADER.size, (length + 3) & ~3)
    return complete, ended


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute of a message."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def acknowledge(data: bytes, what: str) -> None:
    """Read the answer to a request. Raises Refused with `what` and the kernel's error."""
    number = struct.unpack_from("=i", data, _HEADER.size)[0] if len(data) >= _BODY else -errno.EPROTO
    if number:
        raise Refused([], f"{what}: {errno.errorcode.get(-number, number)}")


def messages(data: bytes, kind: int) -> Iterator[dict[int, bytes]]:
    """Attributes of each message of that kind."""
    at = 0
    while at + _BODY <= len(data):
        length, message_type, *_ = _HEADER.unpack_from(data, at)
        if message_type == kind:
            yield dict(_attributes(data[at + _BODY : at + length]))
        at += max(_HEADER.size, (length + 3) & ~3)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind, data[at + _ATTRIBUTE.size : at + length]
        at += max(_ATTRIBUTE.size, (length + 3) & ~3)
