"""Exported connection, and the store that finds due ones.

A record is due after the active timeout while a connection has traffic, after the idle timeout when it has none, and at its
end. The first record of a denied connection, and of one without an answer, is due immediately, so that live views have it soon.
parity: pkg/agent/flowexporter/connections, pkg/agent/flowexporter/priorityqueue
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from antrea.apis.flow import NANOS, FlowEndReason, FlowRecord
from antrea.features.flow_export.l7_event import Ends
from antrea.features.flow_export.l7_requests import NONE, Requests, spliced
from antrea.openflow.tracked_connection import start_time

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from antrea.openflow.tracked_connection import TrackedConnection

ENDED: Final = ("TIME_WAIT", "CLOSE")
"""TCP states after which nothing more is expected."""
SLICE: Final = 200
"""Number of connections that are processed before other tasks may run."""
MAX_ENDED: Final = 16384
"""Maximum number of connections that are no longer tracked and wait for their last record: they accumulate while the collector
is away.
"""
MAX_DENIED: Final = 16384
"""Maximum number of denied connections at a time: a port scan makes any number of them."""
Counts = tuple[int, int, int, int]
"""Packets and bytes, of both directions."""


class Connection(msgspec.Struct, gc=False, eq=False):
    """One connection."""

    record: FlowRecord
    """Record with the ends; connections that differ only in what follows may share it."""
    exported: float
    """Monotonic time of the last export, or of the first poll with it."""
    seen: float
    """Time of the last packet, in seconds of the epoch."""
    seen_at: float
    """The monotonic time of `seen`."""
    port: int = 0
    """Port of the source, and the one that the other end sees, if that is another one."""
    snat_port: int = 0
    start: float = 0
    """Start in seconds of the epoch; whole ones if it is unknown, as it was found at a poll some time after it began."""
    counts: Counts = (0, 0, 0, 0)
    exported_counts: Counts = (0, 0, 0, 0)
    """Counts in the last export."""
    state: str = ""
    changed: bool = True
    """Whether anything was counted, or its state changed, since the last export."""
    ended: bool = False
    queued: bool = False
    is_new: bool = True
    active_at: float = 0.0
    idle_at: float = 0.0
    protocol: str = ""
    """Protocol of its last requests."""
    requests: Requests = NONE
    """Requests since the last export."""
    ends: Ends | None = None
    """Ends by which requests find it."""

    def record_activity(self, now: float, wall: float) -> None:
        """Record activity at these times. While the clock is set back, its own time continues."""
        self.seen = wall if wall >= self.seen else self.seen + max(now - self.seen_at, 0.0)
        self.seen_at = max(now, self.seen_at)

    def written(self) -> FlowRecord:
        """Return the due record; later counts belong to the next one."""
        packets, byte_count, back, back_byte_count = self.counts
        deltas = [max(now - before, 0) for now, before in zip(self.counts, self.exported_counts, strict=True)]
        reason = FlowEndReason.ACTIVE_TIMEOUT if self.changed else FlowEndReason.IDLE_TIMEOUT
        self.protocol = self.requests.protocol or self.protocol
        made = msgspec.structs.replace(
            self.record,
            flow_start_seconds=int(self.start),
            flow_start_nanos=int(self.start % 1 * NANOS),
            flow_end_seconds=int(self.seen),
            flow_end_nanos=int(self.seen % 1 * NANOS),
            flow_end_reason=int(FlowEndReason.END_OF_FLOW if self.ended else reason),
            source_transport_port=self.port,
            proxy_snat_port=self.snat_port,
            packet_total_count=packets,
            octet_total_count=byte_count,
            packet_delta_count=deltas[0],
            octet_delta_count=deltas[1],
            reverse_packet_total_count=back,
            reverse_octet_total_count=back_byte_count,
            reverse_packet_delta_count=deltas[2],
            reverse_octet_delta_count=deltas[3],
            tcp_state=self.state,
            app_protocol_name=self.protocol,
            http_vals=self.requests.text,
        )
        self.exported_counts, self.is_new, self.requests = self.counts, False, NONE
        return made


def _tracked(
    record: FlowRecord, entry: TrackedConnection, poll: _Poll, before: _Poll | None, ends: Ends | None
) -> Connection:
    """Make a connection found at a poll, but not at the one before; None if there was none."""
    start = start_time(entry.start) or int(poll.wall - (poll.now - before.now) / 2 if before else poll.wall)
    snat_port = entry.source_port_seen if record.proxy_snat_ip else 0
    seen = max(poll.wall, start)
    return Connection(record, poll.now, seen, poll.now, entry.client[1], snat_port, start, ends=ends)


def is_unanswered(entry: TrackedConnection) -> bool:
    """Whether it has packets of one direction only, as one that another Node denies. Without counters it counts as answered."""
    if entry.state:
        return entry.state == "SYN_SENT"
    return entry.packets > 0 and not entry.reply_packets


class _Poll(NamedTuple):
    """Time of a poll of all connections."""

    now: float
    """Time by the monotonic clock."""
    wall: float
    """Time in seconds of the epoch."""


class _Queue:
    """Queue of connections by the time at which their record is due."""

    def __init__(self, active: float, idle: float) -> None:
        self._active, self._idle = active, idle
        self._heap: list[tuple[float, int, Connection]] = []
        self._order = count()
        self._forgotten = 0

    def forget(self, connection: Connection) -> None:
        """Remove immediately: while the collector is away, nothing else removes what is due."""
        connection.queued = False
        self._forgotten += 1
        if self._forgotten > SLICE and 4 * self._forgotten >= len(self._heap):
            self._heap = [row for row in self._heap if row[2].queued]
            heapq.heapify(self._heap)
            self._forgotten = 0

    def put(self, connection: Connection, now: float, *, at_once: bool = False) -> None:
        """Queue it, or restart its idle timeout."""
        connection.idle_at = now + self._idle
        if connection.queued and not at_once:
            return  # found too early, it is put back
        connection.active_at = now if at_once else now + self._active
        connection.queued = True
        self._push(connection, min(connection.active_at, connection.idle_at))

    def again(self, connection: Connection, now: float) -> None:
        """Queue it again after its export, while it has traffic."""
        connection.active_at, connection.queued = now + self._active, True
        self._push(connection, min(connection.active_at, max(connection.idle_at, now)))

    def due(self, now: float, most: int) -> list[Connection]:
        """Remove and return those that are due."""
        due: list[Connection] = []
        while self._heap and self._heap[0][0] <= now and len(due) < most:
            _, _, connection = heapq.heappop(self._heap)
            if not connection.queued:
                continue
            at = min(connection.active_at, connection.idle_at)
            if at > now:
                self._push(connection, at)
                continue
            connection.queued = False
            due.append(connection)
        return due

    def _push(self, connection: Connection, at: float) -> None:
        heapq.heappush(self._heap, (at, next(self._order), connection))


class ConnectionStore:
    """Connections of this Node's Pods in connection tracking."""

    def __init__(
        self,
        active: float,
        idle: float,
        stale: float,
        *,
        requests: bool = False,
        most_ended: int = MAX_ENDED,
    ) -> None:
        """`requests`: whether connections are indexed by their ends."""
        self._queue = _Queue(active, idle)
        self._stale, self._requests, self._most_ended = stale, requests, most_ended
        self._by_ends: dict[Ends, Connection] = {}
        self._found: dict[Hashable, Connection | None] = {}
        self._gone: dict[Hashable, float] = {}
        """Time since which connections are no longer tracked whose last record was not exported, the oldest first."""
        self.lost = 0
        """Connections whose last record was not exported in time: it waited too long, or too many did."""
        self._poll: _Poll | None = None
        """Time of the last poll of all connections."""
        self.begun = False
        """Whether there was an update: the first one takes all connections."""
        self.joined: set[Ends] = set()
        """Ends of connections that got requests in the last update."""

    def __len__(self) -> int:
        return sum(1 for connection in self._found.values() if connection is not None)

    def update(
        self,
        changed: Iterable[TrackedConnection],
        gone: Iterable[TrackedConnection],
        now: float,
        wall: float,
        record_of: Callable[[TrackedConnection], FlowRecord | None],
    ) -> Iterator[None]:
        """Process changes, in slices; missing connections have ended."""
        before, poll = self._poll, _Poll(now, wall)
        self.begun, self._poll = True, poll
        for number, entry in enumerate(changed, 1):
            if number % SLICE == 0:
                yield
            key: Hashable = entry.identity
            self._gone.pop(key, None)
            connection = self._found.get(key)
            begins_anew = connection is not None and connection.ended and entry.state not in ENDED
            if key not in self._found or begins_anew:
                connection = self._found[key] = self._new_connection(entry, record_of(entry), poll, before)
            if connection is not None and not connection.ended:
                self._update(connection, entry, now, wall)
        for ended in gone:
            if ended.identity in self._found:
                self._gone.setdefault(ended.identity, now)
        for number, key in enumerate(list(self._gone), 1):
            if number % SLICE == 0:
                yield
            self._end(key, now, before)
        for key in list(self._gone)[: max(len(self._gone) - self._most_ended, 0)]:
            self._forget(key)

    def _new_connection(
        self, entry: TrackedConnection, record: FlowRecord | None, poll: _Poll, before: _Poll | None
    ) -> Connection | None:
        if record is None:
            return None
        ends = Ends(*entry.key[:3], entry.destination, entry.port) if self._requests else None
        connection = _tracked(record, entry, poll, before, ends)
        if ends:
            self._by_ends[ends] = connection
        return connection

    def join(self, requests: Mapping[Ends, Requests], now: float) -> None:
        """Give waiting requests to their connections."""
        self.joined = set()
        for ends, waiting in requests.items():
            if connection := self._by_ends.get(ends):
                self._join(connection, ends, waiting, now)

    def _update(self, connection: Connection, entry: TrackedConnection, now: float, wall: float) -> None:
        counts = (entry.packets, entry.byte_count, entry.reply_packets, entry.reply_byte_count)
        connection.record_activity(now, wall)
        if counts == connection.counts and entry.state == connection.state and not connection.is_new:
            return
        connection.counts, connection.state, connection.changed = counts, entry.state, True
        if entry.state in ENDED:
            connection.ended = True
        self._queue.put(
            connection, now, at_once=connection.is_new and not connection.queued and is_unanswered(entry)
        )

    def _join(self, connection: Connection, ends: Ends, waiting: Requests, now: float) -> None:
        connection.changed = True
        if (both := spliced(connection.requests, waiting)) is not None:
            connection.requests = both
            self.joined.add(ends)
        # requests that come after the last record, or find no room in the next one, have a record of their own
        self._queue.put(connection, now, at_once=connection.ended or both is None)

    def _end(self, key: Hashable, now: float, before: _Poll | None) -> None:
        """End a connection that was there at the poll `before`."""
        connection = self._found[key]
        if (
            connection is None
            or (connection.ended and not connection.queued)
            or now - self._gone[key] >= self._stale
        ):
            self._forget(key)
        elif not connection.ended:
            connection.ended = True
            if before:
                connection.record_activity(*before)
            self._queue.put(connection, now, at_once=True)

    def _forget(self, key: Hashable) -> None:
        connection = self._found.pop(key)
        del self._gone[key]
        if connection is None:
            return
        if connection.ends and self._by_ends.get(connection.ends) is connection:
            del self._by_ends[connection.ends]
        if connection.queued or not connection.ended:
            self.lost += 1
            self._queue.forget(connection)

    def due(self, now: float, most: int) -> list[FlowRecord]:
        """Return the due records."""
        records = []
        for connection in self._queue.due(now, most):
            if self._poll and not connection.ended:
                connection.record_activity(*self._poll)
            records.append(connection.written())
            connection.exported = now
            active, connection.changed = connection.changed and not connection.ended, False
            if active:
                self._queue.again(connection, now)
        return records


class DeniedStore:
    """Connections that policies deny: each of their packets is sent to the agent."""

    def __init__(self, active: float, idle: float, most: int = MAX_DENIED) -> None:
        self._queue = _Queue(active, idle)
        self._most = most
        self._found: dict[Hashable, Connection] = {}
        self.lost = 0
        """Number of packets of connections for which there was no room."""

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self, key: Hashable, byte_count: int, now: float, wall: float, record: Callable[[], FlowRecord | None]
    ) -> None:
        """Count a packet of a connection, whose record is made if it is a new one."""
        connection = self._found.get(key)
        if connection is None:
            if len(self._found) >= self._most:
                self.lost += 1
                return
            made = record()
            if made is None:
                return
            port, snat_port = made.source_transport_port, made.proxy_snat_port
            connection = self._found[key] = Connection(made, now, wall, now, port, snat_port, start=wall)
        packets, before, *_ = connection.counts
        connection.record_activity(now, wall)
        connection.counts, connection.changed = (packets + 1, before + byte_count, 0, 0), True
        self._queue.put(connection, now, at_once=connection.is_new and not connection.queued)

    def due(self, now: float, most: int) -> list[FlowRecord]:
        """Return the due records; a connection without a packet since the last one is removed."""
        records, quiet = [], False
        for denied in self._queue.due(now, most):
            records.append(denied.written())
            if denied.changed:
                denied.changed = False
                self._queue.again(denied, now)
            else:
                denied.ended = quiet = True
        if quiet:
            self._found = {key: connection for key, connection in self._found.items() if not connection.ended}
        return records
