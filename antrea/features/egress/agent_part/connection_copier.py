"""Copies connections of Egress IPs between Nodes: streams those of this Node to the next gateways, and enters theirs into the kernel.

The kernel reports each connection that is established and each end. They are sent in batches every 20 ms, over the gossip, which
authenticates and numbers them (docs/decisions/0002-gossip-key.md). Only what `ConnectionCopy` names is sent, and only what
`CopySource` names is accepted.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from antrea.errors import Invalid, Unavailable
from antrea.facts.egress import ConnectionCopy, CopiedAddress, HeirReport
from antrea.facts.member import GossipMember
from antrea.features.egress.agent.copy_stream import OutgoingStream, Receipt, decode_copy, encode_copy
from antrea.features.egress.agent_part.copy_receiver import MAX_RECORDS, CopyReceiver
from antrea.features.egress.port_block import OTHER_PORTS
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.netlink.connection_event import ConnectionEvents
from antrea.outside.netlink.connection_record import TCP, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.engine import Facts
    from antrea.outside.gossip.feed import GossipFeed

log = klog.logger(__name__)

RESULTS: Final = ("sent", "received", "refused", "beyond")
COPIES: Final = Metric(
    "antrea_agent_egress_connection_copy_count",
    "counter",
    "ALPHA",
    "Number of connections of Egress IPs whose copies were sent to the next gateways, received from a gateway, refused by the kernel, or left out because the address has too many.",
)
REASONS: Final = ("stale", "replayed", "gap", "overflow", "unreadable", "lost")
DROPPED: Final = Metric(
    "antrea_agent_egress_connection_copy_dropped_message_count",
    "counter",
    "ALPHA",
    "Number of messages with copies of connections of Egress IPs that were not accepted, and of times that the kernel lost events.",
)
PURPOSE: Final = "egress-connections"
BATCH_SECONDS: Final = 0.02
ALIVE_SECONDS: Final = 1.0
"""Seconds between empty messages, by which a receiver notices that one was lost."""
REPEAT_SECONDS: Final = 240.0
"""Seconds between snapshots; less than antrea.outside.netlink.copied_connection.OTHER_SECONDS."""
RESTART_SECONDS: Final = 5.0
"""Least seconds between two streams to one Node: each begins with a list of the whole table."""
MAX_EVENTS: Final = 1000
"""Events of one batch: 50,000 in a second."""


class ConnectionCopier:
    """Feed of HeirReport and CopiedAddress."""

    def __init__(self, gossip: GossipFeed) -> None:
        self._gossip = gossip
        self._streams: dict[str, OutgoingStream] = {}
        """Streams by receiver."""
        self._asking: set[str] = set()
        """Receivers that ask for a new stream."""
        self._restarted: dict[str, float] = {}
        """Times at which they got one last."""
        self._events: ConnectionEvents | None = None
        self._wake = asyncio.Event()
        self._repeated = self._shown_alive = 0.0
        self.counts: Counter[str] = Counter()
        """Records: sent, received, refused by the kernel; messages: by why they were not accepted."""
        self.receiver: CopyReceiver | None = None

    async def run(self, facts: Facts) -> None:
        """Run until cancelled."""
        self.receiver = receiver = CopyReceiver(facts, self.counts, self._send)

        def received(sender: str, data: bytes) -> None:
            try:
                message = decode_copy(data)
            except Invalid:
                self.counts["unreadable"] += 1
                return
            if isinstance(message, Receipt):
                self._reported(facts, sender, message)
            else:
                receiver.put(sender, message)

        self._gossip.on_carried(PURPOSE, received)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(receiver.run(), name="copies of connections")
                tasks.create_task(self._stream(facts), name="connections to copy")
        finally:
            self._close()

    def _send(self, to: str, data: bytes) -> None:
        self._gossip.carry(to, PURPOSE, data)

    def _reported(self, facts: Facts, sender: str, receipt: Receipt) -> None:
        stream = self._streams.get(sender)
        if stream is None:
            return
        if receipt.asks and receipt.stream in (0, stream.stream):
            self._asking.add(sender)
            self._wake.set()
        elif receipt.stream == stream.stream:
            facts.put(HeirReport(sender, receipt.whole, receipt.refused > 0, receipt.full))

    async def _stream(self, facts: Facts) -> None:
        with facts.watch(ConnectionCopy, GossipMember) as news:
            while True:
                rows = {ip_address(row.ip).packed: row for row in facts.all(ConnectionCopy)}
                news.clear()
                self._follow(facts, rows)
                if not self._streams:
                    self._close()
                    await news.wait()
                    continue
                try:
                    await self._round(rows)
                except Unavailable as error:
                    log.warning("Failed to copy connections of Egress IPs", err=str(error))
                    self._close()
                    await asyncio.sleep(ALIVE_SECONDS)
                await self._pause(news)

    async def _pause(self, news: asyncio.Event) -> None:
        """Wait for something to send, at most until the next empty message, and then for more."""
        if self._events is not None and not any(stream.busy for stream in self._streams.values()):
            loop = asyncio.get_running_loop()
            self._wake.clear()
            loop.add_reader(self._events.fileno(), self._wake.set)
            waits = [asyncio.ensure_future(self._wake.wait()), asyncio.ensure_future(news.wait())]
            try:
                await asyncio.wait(waits, timeout=ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                loop.remove_reader(self._events.fileno())
                for wait in waits:
                    wait.cancel()
        await asyncio.sleep(BATCH_SECONDS)

    def _follow(self, facts: Facts, rows: Mapping[bytes, ConnectionCopy]) -> None:
        """Have one stream to each Node that gets copies."""
        wanted: dict[str, set[bytes]] = {}
        for packed, row in rows.items():
            if facts.get(CopiedAddress, row.ip):
                # what another Node has of an address that is here may change without this one
                facts.drop(CopiedAddress, row.ip)
            for heir in row.heirs:
                wanted.setdefault(heir, set()).add(packed)
        living = {row.node for row in facts.all(GossipMember) if row.alive}
        now = time.monotonic()
        for heir in self._streams.keys() - living:
            self._end(facts, heir)
        for heir in self._asking & self._streams.keys():
            if now - self._restarted.get(heir, 0.0) > RESTART_SECONDS:
                self._end(facts, heir)
                self._asking.discard(heir)
                self._restarted[heir] = now
        for heir in (wanted.keys() | self._streams.keys()) & living:
            stream = self._streams.setdefault(heir, OutgoingStream(secrets.randbits(62) or 1))
            # a Node that is to have none any more forgets what it has
            stream.follow(wanted.get(heir, ()))
            if stream.is_over:
                self._end(facts, heir)

    def _end(self, facts: Facts, heir: str) -> None:
        del self._streams[heir]
        facts.drop(HeirReport, heir)

    async def _round(self, rows: Mapping[bytes, ConnectionCopy]) -> None:
        if self._events is None:
            self._events = ConnectionEvents()
            for stream in self._streams.values():
                stream.repeat()
        now = time.monotonic()
        self._distribute(self._events, rows)
        if now - self._repeated > REPEAT_SECONDS:
            self._repeated = now
            for stream in self._streams.values():
                stream.repeat()
        await self._load(rows)
        is_due = now - self._shown_alive > ALIVE_SECONDS
        for heir, stream in self._streams.items():
            for batch in stream.batches(alive=is_due):
                self._send(heir, encode_copy(batch))
        if is_due:
            self._shown_alive = now

    def _distribute(self, events: ConnectionEvents, rows: Mapping[bytes, ConnectionCopy]) -> None:
        changes, lost = events.changes(MAX_EVENTS)
        for ip, record, ended in changes:
            row = rows.get(ip)
            if row is not None and (row.whole or needs_copy(record)):
                for heir in row.heirs:
                    if stream := self._streams.get(heir):
                        stream.change(ip, record, ended=ended)
                        self.counts["sent"] += 1
        if lost:
            self.counts["lost"] += 1
            for stream in self._streams.values():
                stream.repeat()

    async def _load(self, rows: Mapping[bytes, ConnectionCopy]) -> None:
        """Take the snapshots that are due, each once for all receivers."""
        due = {ip for stream in self._streams.values() for ip in stream.due}
        for ip in due:
            streams = [stream for stream in self._streams.values() if ip in stream.due]
            for stream in streams:
                stream.begin(ip)
            row = rows.get(ip)
            kernel_records: Iterable[bytes] = (
                await asyncio.to_thread(records, str(ip_address(ip))) if row else ()
            )
            wanted = [record for record in kernel_records if row and (row.whole or needs_copy(record))]
            if len(wanted) > MAX_RECORDS:
                self.counts["beyond"] += len(wanted) - MAX_RECORDS
            for stream in streams:
                stream.load(ip, wanted[:MAX_RECORDS])
                self.counts["sent"] += len(wanted[:MAX_RECORDS])

    def _close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None


def needs_copy(record: bytes) -> bool:
    """Whether a connection of an address with blocks of ports is lost without a copy: it uses none, or it is not of TCP."""
    return record[0] != TCP or int.from_bytes(record[-2:], "big") >= OTHER_PORTS[0]


def copy_metrics(counts: Mapping[str, int]) -> str:
    """Render the metrics in Prometheus' format."""
    text = COPIES.text([Sample(counts.get(result, 0), {"result": result}) for result in RESULTS])
    return text + DROPPED.text([Sample(counts.get(why, 0), {"reason": why}) for why in REASONS])
