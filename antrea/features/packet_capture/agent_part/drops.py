"""Packets that the switch has dropped, as lines from the agent: those that fit the filter of a capture, as blocks of its file."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from typing import TYPE_CHECKING

import msgspec

from antrea.features.packet_capture.agent_part import pcapng
from antrea.features.packet_capture.agent_part.plan import DroppedPacket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.features.packet_capture.agent_part.plan import CaptureOrder
    from antrea.host.bpf import Instruction

_SO_ATTACH_FILTER = 26
_CHUNK = 1 << 16
_MAX_LINE = 1 << 18


def attach(sock: socket.socket, program: Sequence[Instruction]) -> None:
    """Let the kernel run `program` on packets for this socket: what does not fit never arrives there. Raises OSError."""
    code = b"".join(struct.pack("=HBBI", *line) for line in program)
    held = ctypes.create_string_buffer(code, len(code))
    value = struct.pack("HL", len(program), ctypes.addressof(held))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, value)


class Gone(Exception):
    """There are no more lines: the agent has ended."""


class DropFilter:
    """The kernel decides on these as on the others, by the same program, on their way through a pair of sockets."""

    def __init__(self, order: CaptureOrder, source: int) -> None:
        self.source = source
        """Descriptor of what has the lines."""
        self.number = 0
        """How many have fitted."""
        self._snap_length = order.snap_length
        self._rest = b""
        self._into, self._out = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._out.setblocking(False)
        attach(self._out, order.program)

    def blocks(self) -> list[bytes]:
        """Return the blocks that can be read now. Raises Gone."""
        chunk = os.read(self.source, _CHUNK)
        if not chunk or len(self._rest) > _MAX_LINE:
            raise Gone
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        packets = [msgspec.json.decode(line, type=DroppedPacket) for line in lines]
        packet_blocks = [self._block(packet) for packet in packets if self._fits(packet.frame)]
        first = [pcapng.drops(self._snap_length)] if packet_blocks and not self.number else []
        self.number += len(packet_blocks)
        return first + packet_blocks

    def _fits(self, frame: bytes) -> bool:
        try:
            # a frame that does not fit is refused at once, with EPERM
            self._into.send(frame)
            return bool(self._out.recv(_CHUNK * 2))
        except OSError:
            return False

    def _block(self, packet: DroppedPacket) -> bytes:
        data = packet.frame[: self._snap_length]
        return pcapng.dropped(time.time_ns(), data, len(packet.frame), packet.reason)
