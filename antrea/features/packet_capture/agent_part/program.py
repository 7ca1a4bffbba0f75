"""Captures packets of one interface into a file, in a process of its own: the agent's loop has not to carry them.

`python -m antrea.features.packet_capture.agent_part.program` reads a CaptureOrder as one line of JSON, then DroppedPackets, and prints CaptureReports. The file
is always one that can be read: what cannot be written whole is cut off.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import sys
import time

import msgspec

from antrea.features.packet_capture.agent_part import pcapng
from antrea.features.packet_capture.agent_part.drops import DropFilter, Gone, attach
from antrea.features.packet_capture.agent_part.plan import CaptureOrder, CaptureReport

NICENESS = 5
_EVERY_PROTOCOL = 0x0003
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS, _SOL_PACKET, _PACKET_STATISTICS = 33, 35, 263, 6
_OUTGOING = 4
"""Type of packets that this machine sends by the interface (PACKET_OUTGOING): they go to the Pod."""
_MAX_BATCH = 256
"""Packets that are written together."""
_MAX_BYTES = 1 << 19
"""Bytes of a packet, as long as they get before they are cut for the wire."""
_SETTLE_SECONDS = 0.3
"""After the last packet: what the switch has dropped comes later than the packet itself."""
_LOOK_BYTES = 1 << 20
"""Written between looks at the free space."""


class _Failed(Exception):
    """The capture cannot continue."""


class PcapngFile:
    """Appends blocks, and takes back what did not fit. Raises _Failed."""

    def __init__(self, order: CaptureOrder) -> None:
        self._limits = order.limits
        self._path = order.path
        self._descriptor = os.open(order.path, os.O_WRONLY | os.O_NOFOLLOW)
        self._size = 0
        self._looked_at = -_LOOK_BYTES

    def append(self, blocks: list[bytes]) -> None:
        data = b"".join(blocks)
        if self._size + len(data) > self._limits.file_bytes:
            raise _Failed(f"the file has reached its limit of {self._limits.file_bytes >> 20} MiB")
        if self._size + len(data) - self._looked_at >= _LOOK_BYTES:
            self._check_free_space()
        try:
            written = 0
            while written < len(data):
                # at an offset of our own: that of the file stays behind what was cut off
                written += os.pwrite(self._descriptor, data[written:], self._size + written)
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise _Failed(f"couldn't write packets: {error.strerror}: {self._path}") from error
        self._size += len(data)

    def _check_free_space(self) -> None:
        self._looked_at = self._size
        state = os.fstatvfs(self._descriptor)
        free = state.f_bavail * state.f_frsize
        if free < self._limits.free_bytes:
            raise _Failed(
                f"couldn't write packets: No space left on device: {free >> 20} MiB are free for {self._path}"
            )


class Capture:
    """One capture from the beginning to its end."""

    def __init__(self, order: CaptureOrder) -> None:
        self._order = order
        self._captured = self._seen = self._dropped = 0
        self._drops = DropFilter(order, sys.stdin.fileno())
        self._reported = -order.report_seconds
        self._buffer = bytearray(_MAX_BYTES)

    def run(self) -> CaptureReport:
        """The last report."""
        why, timed_out = "", False
        try:
            file = PcapngFile(self._order)
            with self._socket() as sock:
                # once there is a header, no packet is missed
                file.append([pcapng.header(self._order.device, self._order.snap_length, "antrea-agent")])
                try:
                    timed_out = not self._filled(sock, file)
                finally:
                    self._count(sock)
                    self._settle(file)
                    file.append([pcapng.statistics(time.time_ns(), self._seen, self._dropped)])
        except _Failed as error:
            why = str(error)
        except OSError as error:
            why = f"{self._order.device}: {error.strerror}"
        return self._state(done=True, timed_out=timed_out, why=why)

    def _socket(self) -> socket.socket:
        """Nothing arrives before it is bound, and so nothing that the filter has not seen. Raises OSError, _Failed."""
        order = self._order
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        attach(sock, order.program)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, order.limits.buffer_bytes)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setblocking(False)
        try:
            sock.bind((order.device, _EVERY_PROTOCOL))
        except OSError as error:
            raise _Failed(removed_interface(order.device)) from error
        return sock

    def _filled(self, sock: socket.socket, file: PcapngFile) -> bool:
        """Whether the number of packets was reached in time. Raises _Failed, OSError."""
        end = time.monotonic() + self._order.seconds
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
        while (left := end - time.monotonic()) > 0:
            ready = dict(poll.poll(1000 * min(left, self._order.report_seconds)))
            if self._drops.source in ready:
                self._append_drops(file)
            blocks = self._received(sock)
            if blocks:
                file.append(blocks)
                self._captured += len(blocks)
                if self._captured == self._order.number:
                    return True
            if self._captured and time.monotonic() - self._reported >= self._order.report_seconds:
                self._report(sock)
        return False

    def _append_drops(self, file: PcapngFile) -> None:
        """Raises _Failed."""
        try:
            blocks = self._drops.blocks()
        except Gone as error:
            raise _Failed("the agent has ended") from error
        if blocks:
            file.append(blocks)

    def _settle(self, file: PcapngFile) -> None:
        """Raises _Failed."""
        end = time.monotonic() + _SETTLE_SECONDS
        while (left := end - time.monotonic()) > 0 and select.select([self._drops.source], (), (), left)[0]:
            self._append_drops(file)

    def _state(self, *, done: bool = False, timed_out: bool = False, why: str = "") -> CaptureReport:
        return CaptureReport(
            self._captured, self._drops.number, self._dropped, done=done, timed_out=timed_out, why=why
        )

    def _received(self, sock: socket.socket) -> list[bytes]:
        """Packets that have come, as blocks. Raises _Failed."""
        most = _MAX_BATCH if self._order.number < 1 else min(_MAX_BATCH, self._order.number - self._captured)
        blocks: list[bytes] = []
        while len(blocks) < most:
            try:
                length, notes, _, address = sock.recvmsg_into([self._buffer], 64)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENETDOWN and blocks:
                    break
                raise _Failed(removed_interface(self._order.device)) from error
            data = bytes(self._buffer[: min(length, self._order.snap_length)])
            direction = pcapng.OUTBOUND if address[2] == _OUTGOING else pcapng.INBOUND
            blocks.append(pcapng.packet(_moment(notes), data, length, direction))
        return blocks

    def _count(self, sock: socket.socket) -> None:
        """Reading the kernel's counters resets them."""
        seen, dropped = struct.unpack("=II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._seen += seen
        self._dropped += dropped

    def _report(self, sock: socket.socket) -> None:
        self._count(sock)
        self._reported = time.monotonic()
        emit(self._state())


def _moment(notes: list[tuple[int, int, bytes]]) -> int:
    """When the kernel had the packet, in nanoseconds of the epoch."""
    for level, kind, value in notes:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, rest = struct.unpack("=qq", value[:16])
            return int(seconds * 10**9 + rest)
    return time.time_ns()


def removed_interface(device: str) -> str:
    """Return the report on an interface that no longer exists."""
    return f"interface {device} is gone: its Pod was deleted, or has moved"


def emit(report: CaptureReport) -> None:
    """Print a line."""
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Entry point."""
    os.nice(NICENESS)
    with os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as lines:
        order = msgspec.json.decode(lines.readline(), type=CaptureOrder)
    emit(Capture(order).run())


if __name__ == "__main__":
    main()
