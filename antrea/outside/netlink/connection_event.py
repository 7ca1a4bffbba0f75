"""Events of connections whose source the host translates, as they are established and as they end.

A filter in the kernel passes what matters: a connection that is established (TCP) or assured (UDP), and its end. Of eight
events of a short connection two reach this process. Source: net/netfilter/nf_conntrack_netlink.c ctnetlink_conntrack_event,
net/core/filter.c
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys
from typing import Final, NamedTuple

from antrea.errors import Unavailable
from antrea.outside.netlink.connection_record import (
    ASSURED,
    DESTINATION_TRANSLATED,
    ESTABLISHED,
    ID,
    LAYOUTS,
    PROTOCOL_INFO,
    SOURCE_TRANSLATED,
    TCP,
    UDP,
    Layout,
    record_of,
)
from antrea.outside.netlink.conntrack import NETFILTER

_TIME_WAIT, _CLOSE = 7, 8
_NEW, _DELETE = 0, 2
_GROUPS: Final = (1, 2, 3)
"""Multicast groups NFNLGRP_CONNTRACK_NEW, _UPDATE and _DESTROY."""
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_RECEIVE_BUFFER, _ATTACH_FILTER = 33, 26
"""SO_RCVBUFFORCE, SO_ATTACH_FILTER"""
_ROOM: Final = 1 << 22
"""Bytes of events that wait in the kernel: about 5,000."""
_EVENT: Final = 4096
_LOAD_HALF, _LOAD_BYTE, _LOAD_WORD, _LOAD_BYTE_AT = 0x28, 0x30, 0x20, 0x50
_LOAD, _LOAD_INDEX, _TO_INDEX, _AND, _EQUAL, _BITS, _RETURN = 0x00, 0x01, 0x07, 0x54, 0x15, 0x45, 0x06
_ATTRIBUTE_OF: Final = 0xFFFFF000 + 12
"""SKF_AD_OFF + SKF_AD_NLATTR: place of the attribute with the number in the index, from the accumulator on."""
_KIND_AT: Final = 4 if sys.byteorder == "little" else 5
"""Offset of the byte of a message's kind that is not its subsystem."""
_VERSIONS: Final = {layout.family: version for version, layout in LAYOUTS.items()}


class Change(NamedTuple):
    """A connection that is to be copied from now on, or not any more."""

    ip: bytes
    """Address that others see."""
    record: bytes
    ended: bool


def change_of(data: bytes) -> Change | None:
    """Return what an event of the filter means; None if it has another form."""
    version = _VERSIONS.get(data[16])
    if version is None:
        return None
    body, rest = data[16:], LAYOUTS[version].rest
    kind = int.from_bytes(data[4:6], sys.byteorder) & 0xFF
    is_tcp = body[16 + 2 * LAYOUTS[version].size + 12] == TCP
    state = 0
    if is_tcp and kind == _NEW:
        if len(body) < rest + 37:
            return None
        state = body[rest + 36]
    ip, record = record_of(body, version, ESTABLISHED if is_tcp else 0)
    return Change(ip, record, kind == _DELETE or state in (_TIME_WAIT, _CLOSE))


class ConnectionEvents:
    """Socket of changes since it was opened, in the network namespace of the thread that opens it."""

    def __init__(self) -> None:
        """Raises Unavailable."""
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, NETFILTER
            )
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER, _ROOM)
            attach_filter(self._socket)
            self._socket.bind((0, 0))
            for group in _GROUPS:
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        except OSError as error:
            raise Unavailable(f"connections of the kernel cannot be followed: {error}") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def changes(self, most: int) -> tuple[list[Change], bool]:
        """Return up to `most` changes, and whether others were lost before."""
        changes: list[Change] = []
        receive, lost = self._socket.recv, False
        while len(changes) < most:
            try:
                data = receive(_EVENT)
            except BlockingIOError:
                break
            except OSError:
                lost = True
                continue
            if change := change_of(data):
                changes.append(change)
        return changes, lost


def attach_filter(events: socket.socket) -> None:
    """Pass only events of connections whose source is translated, that are established or assured, and that end."""
    program = b"".join(struct.pack("=HBBI", *line) for line in _program())
    buffer = ctypes.create_string_buffer(program)
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    events.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, head)


def _program() -> list[tuple[int, int, int, int]]:
    """Return the filter in classic BPF: code, jump if true, jump if false, operand."""
    lines: list[tuple[int, int, int, int]] = []
    for layout in LAYOUTS.values():
        part = _family_program(layout)
        lines += [(_LOAD_BYTE, 0, 0, 16), (_EQUAL, 0, len(part), layout.family)]
        targets = {"tcp": 9, "end": 20, "bare": 23, "pass": 25, "drop": 26}
        for place, (code, yes, no, operand) in enumerate(part):
            ahead = [targets[to] - place - 1 if to else 0 for to in (yes, no)]
            lines.append((code, ahead[0], ahead[1], operand))
    return [*lines, (_RETURN, 0, 0, 0)]


def _family_program(layout: Layout) -> list[tuple[int, str, str, int]]:
    """Return the part for a family. The state of TCP is looked up: the end of a connection has other attributes before it."""
    rest, protocol = 16 + layout.rest, 16 + 28 + 2 * layout.size
    wanted = ASSURED | SOURCE_TRANSLATED
    return [
        (_LOAD_HALF, "", "", rest + 2),
        (_EQUAL, "", "drop", int.from_bytes(ID.to_bytes(2, sys.byteorder), "big")),
        (_LOAD_WORD, "", "", rest + 12),
        (_BITS, "drop", "", DESTINATION_TRANSLATED),
        (_AND, "", "", wanted),
        (_EQUAL, "", "drop", wanted),
        (_LOAD_BYTE, "", "", protocol),
        (_EQUAL, "tcp", "", TCP),
        (_EQUAL, "pass", "drop", UDP),
        (_LOAD, "", "", rest),
        (_LOAD_INDEX, "", "", PROTOCOL_INFO),
        (_LOAD_WORD, "", "", _ATTRIBUTE_OF),
        (_EQUAL, "bare", "", 0),
        (_TO_INDEX, "", "", 0),
        (_LOAD_BYTE, "", "", _KIND_AT),
        (_EQUAL, "end", "", _DELETE),
        (_LOAD_BYTE_AT, "", "", 12),
        (_EQUAL, "pass", "", ESTABLISHED),
        (_EQUAL, "pass", "", _TIME_WAIT),
        (_EQUAL, "pass", "drop", _CLOSE),
        # end: what was closed has been passed before
        (_LOAD_BYTE_AT, "", "", 12),
        (_EQUAL, "drop", "", _TIME_WAIT),
        (_EQUAL, "drop", "pass", _CLOSE),
        # bare: no state
        (_LOAD_BYTE, "", "", _KIND_AT),
        (_EQUAL, "pass", "drop", _DELETE),
        (_RETURN, "", "", 0xFFFFFFFF),
        (_RETURN, "", "", 0),
    ]
