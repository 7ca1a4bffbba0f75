"""Sets of the kernel's ipset: their names, the elements of one of them, and their removal.

The image has no program ipset. Source: linux/netfilter/ipset/ip_set.h, net/netfilter/ipset/ip_set_core.c
"""

from __future__ import annotations

import errno
import socket
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.outside.netlink.message import (
    ASK,
    ASK_ALL,
    Request,
    attribute,
    attribute_rows,
    attributes,
    string,
)
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NETFILTER: Final = 12
_SUBSYSTEM: Final = 6 << 8
_DESTROY, _LIST = 3, 7
_PROTOCOL, _SET_NAME, _FLAGS, _DATA, _ELEMENTS = 1, 2, 6, 7, 8
_IP, _PORT, _TRANSPORT = 1, 4, 7
"""Attributes of an element, in network byte order; an address is nested."""
_NAMES_ONLY: Final = 1 << 1
_VERSION: Final = 6
"""Supported by all kernels since 2.6.39."""
_IN_USE: Final = 4100
"""IPSET_ERR_BUSY."""
_UNKNOWN: Final = {errno.EINVAL, errno.EPROTONOSUPPORT}
"""Answers of a kernel without ipset."""


def set_names() -> list[str]:
    """All of this network namespace; none where the kernel has no ipset. Raises OSError."""
    names_only = attribute(_FLAGS, _NAMES_ONLY.to_bytes(4, "big"))
    try:
        bodies = _ask(_request(_LIST, names_only, everything=True))
    except OSError as error:
        if error.errno in _UNKNOWN:
            return []
        raise
    return sorted(
        {body[_SET_NAME].rstrip(b"\0").decode(errors="replace") for body in bodies if _SET_NAME in body}
    )


class Element(NamedTuple):
    """Element of a set of ports, or of addresses and ports."""

    protocol: int
    """0 in a set of ports alone."""
    ip: str
    """Empty in a set of ports alone."""
    port: int


def set_elements(name: str) -> set[Element]:
    """Return the elements with a port. Raises OSError: ENOENT if there is no set of that name."""
    elements = set()
    for body in _ask(_request(_LIST, string(_SET_NAME, name), everything=True)):
        for kind, data in attribute_rows(body.get(_ELEMENTS, b"")):
            parts = attributes(data) if kind == _DATA else {}
            if port := parts.get(_PORT):
                protocol = int.from_bytes(parts.get(_TRANSPORT, b""), "big")
                elements.add(Element(protocol, _address(parts), int.from_bytes(port, "big")))
    return elements


def _address(parts: Mapping[int, bytes]) -> str:
    nested = attributes(parts.get(_IP, b""))
    return next((str(ip_address(data)) for data in nested.values()), "")


def destroy_sets(names: Iterable[str]) -> None:
    """Raises OSError about the first that a rule or another set still uses, or that is not there; others go."""
    requests = [_request(_DESTROY, string(_SET_NAME, name)) for name in names]
    try:
        if requests:
            _ask(*requests)
    except OSError as error:
        if error.errno == _IN_USE:
            raise OSError(errno.EBUSY, "a rule of another program uses an ipset") from error
        raise


def _request(command: int, attributes_: bytes, *, everything: bool = False) -> Request:
    body = struct.pack("=BBH", socket.AF_INET, 0, 0) + attribute(_PROTOCOL, bytes([_VERSION])) + attributes_
    return Request(_SUBSYSTEM | command, ASK_ALL if everything else ASK, body)


def _ask(*requests: Request) -> list[dict[int, bytes]]:
    with Rtnl(_NETFILTER) as kernel:
        return [attributes(reply.body[4:]) for reply in kernel.ask(*requests)]
