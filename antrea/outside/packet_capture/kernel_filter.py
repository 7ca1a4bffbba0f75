"""A filter of packets that the kernel runs for a socket: what does not fit never arrives there."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.host.bpf import Instruction

_SO_ATTACH_FILTER = 26


def attach(sock: socket.socket, program: Sequence[Instruction]) -> None:
    """Raises OSError."""
    code = b"".join(struct.pack("=HBBI", *line) for line in program)
    held = ctypes.create_string_buffer(code, len(code))
    value = struct.pack("HL", len(program), ctypes.addressof(held))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, value)
