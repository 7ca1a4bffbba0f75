"""The channel of packets between the switch and the agent: packet-ins to the handlers of features, packet-outs.

A connection of OpenFlow 1.5 to the bridge's management socket. Each feature has a queue as long as two seconds of its rate;
what exceeds it is counted and dropped. The switch does not wait for the agent: it keeps a hundred unread messages.
parity: pkg/agent/openflow/packetin.go, pkg/ovs/openflow/ofctrl_packetin.go
Source: OpenFlow Switch Specification 1.5.1; openvswitch/nicira-ext.h
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Invalid
from antrea.openflow.action import CONTROLLER_ID
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.packet_in import PacketIn, packet_in
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.vswitch.message import ECHO_REPLY, ECHO_REQUEST, HELLO, RETRY, message, next_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from antrea.openflow.packet_out import PacketOut

    Handler = Callable[[PacketIn], None]

log = klog.logger(__name__)

DROPPED = Metric(
    "antrea_agent_packet_in_dropped_count",
    "counter",
    "ALPHA",
    "Number of packets between OVS and the Antrea Agent that were dropped, because more came than packetInRate or because"
    " they could not be read or sent. The category is used as a label.",
)
OVERFLOW = Metric(
    "antrea_agent_packet_in_overflow_count",
    "counter",
    "ALPHA",
    "Number of messages that OVS dropped since it started, because the one they were for, such as the Antrea Agent, did not"
    " read in time.",
)
OVERFLOW_COUNTER = "rconn_overflow"
"""Name of the counter in OVS."""
UNREADABLE = "unreadable"
"""Label of packet-ins that cannot be parsed, or that have no handler."""
UNSENT = "packet-out"
"""Label of packets to the switch that it was not there for, or too slow."""
_NAMES = {int(category): category.name for category in Category}

_ERROR, _VENDOR, _SET_CONFIG, _PACKET_OUT = 1, 4, 9, 13
_NICIRA = 0x00002320
_SET_PACKET_IN_FORMAT, _SET_CONTROLLER_ID, _RESUME, _PACKET_IN2 = 16, 20, 28, 30
_FORMAT = 2
"""NXPIF_NXT_PACKET_IN2"""
_WHOLE = 0xFFFF
_SLICE = 16
"""Packets handled before others get the loop."""
_SLICE_SECONDS = 0.001
"""Time after which no further packet is handled before others get the loop."""
_UNSENT = 1 << 20
"""Bytes of packet-outs that may wait for the switch; more are counted and dropped."""


class _Line(msgspec.Struct):
    """The queue of one feature."""

    handler: Handler
    waiting: deque[PacketIn]
    news: asyncio.Event


class Packets:
    """The connection to one bridge through `socket`, <run directory>/<bridge>.mgmt.

    `rate` is how many packets each feature looks at in a second; after a pause, twice as many at once.
    """

    def __init__(self, socket: Path, rate: int) -> None:
        self._socket = socket
        self._rate = rate
        self._lines: dict[int, _Line] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._number = 0
        self.dropped: Counter[str] = Counter()
        """Dropped packets by the feature's name."""
        self.connected = asyncio.Event()
        """The switch is set up for packet-ins."""

    def deliver(self, category: Category, handler: Handler) -> None:
        """Register `handler` for packet-ins of `category`, in order; call this before `run`. Raises ValueError if there is one."""
        if int(category) in self._lines:
            raise ValueError(f"packet-ins of category {category.name}: two parts take them")
        self._lines[int(category)] = _Line(handler, deque(), asyncio.Event())

    def send(self, packet: PacketOut) -> None:
        """Send a packet-out without confirmation; it is dropped if the switch is away or too slow."""
        self._send(_PACKET_OUT, packet.body)

    def resume(self, packet: PacketIn) -> None:
        """Have the switch resume a packet that it holds; a switch that has restarted since has lost it."""
        self._send(_VENDOR, struct.pack("!II", _NICIRA, _RESUME) + packet.held)

    def _send(self, kind: int, body: bytes) -> None:
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > _UNSENT:
            self.dropped[UNSENT] += 1
        else:
            self._write(writer, kind, body)

    def text(self) -> str:
        """Return the dropped packets in Prometheus' format."""
        names = [*(_NAMES[number] for number in sorted(self._lines)), UNSENT, UNREADABLE]
        return DROPPED.text(Sample(self.dropped[name], {"category": name}) for name in names)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for line in self._lines.values():
                tasks.create_task(self._handle(line), name="packet-ins")
            while True:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await self._session()
                await asyncio.sleep(RETRY)

    async def _session(self) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            self._write(writer, HELLO, b"")
            await next_message(reader)
            self._write(writer, _VENDOR, struct.pack("!II6xH", _NICIRA, _SET_CONTROLLER_ID, CONTROLLER_ID))
            self._write(writer, _VENDOR, struct.pack("!III", _NICIRA, _SET_PACKET_IN_FORMAT, _FORMAT))
            # Management connections hear nothing before they have said how much of a packet they want.
            self._write(writer, _SET_CONFIG, struct.pack("!HH", 0, _WHOLE))
            self._writer = writer
            self.connected.set()
            await self._listen(reader, writer)
        finally:
            self.connected.clear()
            self._writer = None
            writer.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        while True:
            kind, number, body = await next_message(reader)
            if kind == ECHO_REQUEST:
                self._write(writer, ECHO_REPLY, body, number)
            elif kind == _VENDOR and body[:8] == struct.pack("!II", _NICIRA, _PACKET_IN2):
                self._queue(body[8:])
            elif kind == _ERROR:
                log.v(2).info("The switch rejected a message", error=body[:4].hex(), number=number)
            if (count := count + 1) % _SLICE == 0:
                await asyncio.sleep(0)

    def _queue(self, body: bytes) -> None:
        try:
            packet = packet_in(body)
        except Invalid as error:
            log.v(2).info("Failed to parse a packet-in", err=str(error))
            self.dropped[UNREADABLE] += 1
            return
        line = self._lines.get(packet.userdata[0]) if packet.userdata else None
        if line is None:
            self.dropped[UNREADABLE] += 1
        elif len(line.waiting) >= 2 * self._rate:
            self.dropped[_NAMES[packet.userdata[0]]] += 1
        else:
            line.waiting.append(packet)
            line.news.set()

    async def _handle(self, line: _Line) -> None:
        """In order, as fast as the rate allows. A handler's bug costs one packet."""
        loop, tokens = asyncio.get_running_loop(), 2.0 * self._rate
        last = loop.time()
        while True:
            await line.news.wait()
            now = loop.time()
            tokens, last = min(2.0 * self._rate, tokens + (now - last) * self._rate), now
            for _ in range(min(_SLICE, int(tokens), len(line.waiting))):
                tokens -= 1
                self._handled(line)
                if loop.time() - now > _SLICE_SECONDS:
                    break
            if not line.waiting:
                line.news.clear()
            await asyncio.sleep(0 if tokens >= 1 else (1 - tokens) / self._rate)

    @staticmethod
    def _handled(line: _Line) -> None:
        packet = line.waiting.popleft()
        try:
            line.handler(packet)
        except Exception as error:  # noqa: BLE001 (one packet that fails leaves the others)
            log.error("Failed to handle a packet-in", error=error, userdata=packet.userdata.hex())

    def _write(self, writer: asyncio.StreamWriter, kind: int, body: bytes, number: int | None = None) -> None:
        if number is None:
            self._number = number = (self._number + 1) & 0xFFFFFFFF
        writer.write(message(kind, number, body))
