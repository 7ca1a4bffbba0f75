"""pyroute2 as the other end of our netlink messages: how it reads what we send, and what it would send."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from hypothesis import strategies as st
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from antrea.outside.netlink.message import Reply, Request, replies

MACS = st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":"))
INDEXES = st.integers(1, 2**31 - 1)
INTERFACES = st.tuples(st.ip_addresses(), st.integers(0, 128)).map(
    lambda pair: ipaddress.ip_interface(f"{pair[0]}/{min(pair[1], pair[0].max_prefixlen)}")
)
ASK, ASK_ALL, NEW, PUT = 0x5, 0x301, 0x605, 0x505


def read(request: Request) -> dict[str, Any]:
    """As pyroute2 reads it: header fields that say something, and attributes by name, nested ones too."""
    (message,) = MarshalRtnl().parse(request.encode(7))
    header = message["header"]
    assert (header["length"], header["sequence_number"]) == (len(request.encode(7)), 7)
    return {"event": message["event"], "ask": header["flags"], **plain(message)}


def plain(message: Any) -> dict[str, Any]:
    fields = {name: message[name] for name, _ in message.fields if name != "__align" and message[name]}
    for name, value in message["attrs"]:
        fields[name] = plain(value) if isinstance(value, dict) else value
    return fields


def spelled(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """As inet_ntop does and pyroute2 with it: Python spells those that hold an IPv4 address in another way."""
    return socket.inet_ntop(socket.AF_INET6 if address.version == 6 else socket.AF_INET, address.packed)


def answer(message: Any, **fields: Any) -> Reply:
    """A message as the kernel sends it, in pyroute2's hand."""
    for name, value in fields.items():
        message[name] = value
    message.encode()
    (reply,) = replies(bytes(message.data))
    return reply
