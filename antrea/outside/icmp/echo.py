"""Sockets that send echo requests and receive the replies to them, with the kernel's time of receipt.

Source: RFC 792 (echo), RFC 4443 4.1, raw(7), icmp(7), socket(7) SO_TIMESTAMPNS; RFC 3542 3.2 (ICMP6_FILTER).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

log = klog.logger(__name__)

ECHO_REQUEST, ECHO_REPLY = {False: 8, True: 128}, {False: 0, True: 129}
"""Types of messages by whether it is IPv6."""
SIZE: Final = 512
"""Number of bytes that are read of a message; longer ones are not ours."""
_SOL_RAW: Final = 255
_ICMP_FILTER: Final = 1
_ICMP6_FILTER: Final = 1
_TIMESTAMP: Final = 35
"""SO_TIMESTAMPNS and its control message."""
_HEADER: Final = struct.Struct("!BBHHH")
_MTU_DISCOVER: Final = {False: (socket.IPPROTO_IP, 10), True: (socket.IPPROTO_IPV6, 23)}
"""Level and IP_MTU_DISCOVER or IPV6_MTU_DISCOVER of in.h and in6.h, by whether it is IPv6."""
_PROBE: Final = 3
"""IP_PMTUDISC_PROBE: set the flag "don't fragment", whatever sizes routers have refused before."""
_TIMESPEC: Final = struct.Struct("@qq")
_MAX_BATCH: Final = 64
"""Replies that are read before others have their turn."""


class EchoReply(NamedTuple):
    """A reply to a request of this socket's identifier."""

    ip: str
    sequence: int
    data: bytes
    at: int
    """Nanoseconds since the epoch at which the kernel received it."""


class EchoSocket:
    """Socket of one family; in the network namespace of the thread that makes it."""

    def __init__(
        self, identifier: int, received: Callable[[EchoReply], None], *, ipv6: bool, fragments: bool = True
    ) -> None:
        """`received` is called with each reply; without `fragments` no host and no router splits a request. Raises OSError."""
        self._identifier, self._received, self._ipv6 = identifier, received, ipv6
        family, protocol = (
            (socket.AF_INET6, socket.IPPROTO_ICMPV6) if ipv6 else (socket.AF_INET, socket.IPPROTO_ICMP)
        )
        self._socket = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _TIMESTAMP, 1)
            if not fragments:
                self._socket.setsockopt(*_MTU_DISCOVER[ipv6], _PROBE)
            self._filter()
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
        except BaseException:
            self._socket.close()
            raise

    def _filter(self) -> None:
        """Let the kernel pass on replies alone."""
        if self._ipv6:
            bitmap = [0xFFFFFFFF] * 8
            bitmap[ECHO_REPLY[True] >> 5] &= ~(1 << (ECHO_REPLY[True] & 31)) & 0xFFFFFFFF
            self._socket.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("@8I", *bitmap))
        else:
            blocked = ~(1 << ECHO_REPLY[False]) & 0xFFFFFFFF
            self._socket.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("@I", blocked))

    def send(self, ip: str, sequence: int, data: bytes) -> int:
        """Send a request; when, in nanoseconds since the epoch. Raises OSError."""
        head = _HEADER.pack(ECHO_REQUEST[self._ipv6], 0, 0, self._identifier, sequence)
        if not self._ipv6:
            # of ICMPv6 the kernel computes it
            head = _HEADER.pack(ECHO_REQUEST[False], 0, checksum(head + data), self._identifier, sequence)
        at = time.time_ns()
        self._socket.sendto(head + data, (ip, 0))
        return at

    def _read(self) -> None:
        for _ in range(_MAX_BATCH):
            try:
                message, control, _, sender = self._socket.recvmsg(SIZE, 128)
            except BlockingIOError:
                return
            except OSError as error:
                log.v(2).info("Failed to receive an echo reply", err=str(error))
                return
            if (reply := self._reply(message, str(sender[0]), _time(control))) is not None:
                self._received(reply)

    def _reply(self, message: bytes, ip: str, at: int) -> EchoReply | None:
        """None for what is not a reply to this socket."""
        if not self._ipv6:
            # the kernel gives the IPv4 header, too, and has checked it
            message = message[(message[0] & 15) * 4 :] if message else message
        if len(message) < _HEADER.size:
            return None
        kind, _, _, identifier, sequence = _HEADER.unpack_from(message)
        if (kind, identifier) != (ECHO_REPLY[self._ipv6], self._identifier):
            return None
        return EchoReply(ip.partition("%")[0], sequence, message[_HEADER.size :], at)

    def close(self) -> None:
        """No reply is received any more."""
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()


def checksum(data: bytes) -> int:
    """RFC 1071.

    >>> hex(checksum(bytes.fromhex("0800000000010002")))
    '0xf7fc'
    """
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


def _time(control: list[tuple[int, int, bytes]]) -> int:
    """Return the time of receipt from the control message; now, without one."""
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, _TIMESTAMP) and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return time.time_ns()
