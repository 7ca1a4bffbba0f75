"""A netlink socket, of routes by default: requests in one system call, answers checked. Messages are in `message`."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from antrea.outside.netlink.message import replies

if TYPE_CHECKING:
    from antrea.outside.netlink.message import Reply, Request

_ROOM = 1 << 16
"""Bytes of the largest datagram: the kernel cuts dumps to 32 KiB."""
_SOL_NETLINK, _CAP_ACK = 270, 10
_TIMEOUT = 10.0
"""Seconds; the kernel answers before the system call of the request returns, so this only ends what cannot be."""


class Rtnl:
    """Socket of rtnetlink in the network namespace that its thread is in when it is made. To be used in a `with`."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.settimeout(_TIMEOUT)
        self._number = 0

    def __enter__(self) -> Rtnl:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, *requests: Request) -> list[Reply]:
        """Send all at once; they are done in order, each for itself. Returns what they brought.

        Raises OSError with the kernel's number about the first that it refused; those behind it were tried all the same.
        """
        first = self._number + 1
        self._number += len(requests)
        self._socket.send(b"".join(request.encode(first + n) for n, request in enumerate(requests)))
        answers: list[Reply] = []
        pending, refused = len(requests), 0
        while pending:
            for reply in replies(self._socket.recv(_ROOM)):
                if not reply.ends:
                    answers.append(reply)
                else:
                    pending -= 1
                    refused = refused or reply.errno
        if refused:
            raise OSError(refused, os.strerror(refused))
        return answers
