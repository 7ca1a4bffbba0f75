"""A connection that is exported, and the store that finds which one is due.

A record is due after the active timeout while a connection has traffic, after the idle timeout when it has none, and at its end.
The first record of a denied connection, and of one without an answer, is due at once, so that live views have it soon.
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
"""States of TCP in which nothing more is to come."""
SLICE: Final = 200
"""Connections that are taken in before others have their turn."""
MAX_ENDED: Final = 16384
"""Connections that are tracked no more and wait for their last record: while the collector is away they come and come."""
MAX_DENIED: Final = 16384
"""Denied connections at a time: a port scan makes any number of them."""
Counts = tuple[int, int, int, int]
"""Packets and bytes, of both directions."""


class Connection(msgspec.Struct, gc=False, eq=False):
    """One connection."""

    record: FlowRecord
    """Who it is of; connections that differ in what follows alone may share it."""
    exported: float
    """The monotonic time at which it was exported last, or found."""
    seen: float
    """When there was something of it last, in seconds of the epoch."""
    seen_at: float
    """The monotonic time of `seen`."""
    port: int = 0
    """Of the source, with the one that the other end sees, if that is another one."""
    snat_port: int = 0
    start: float = 0
    """In seconds of the epoch; whole ones if it is not known, as it was found at a poll some time after it began."""
    counts: Counts = (0, 0, 0, 0)
    told: Counts = (0, 0, 0, 0)
    """The counts that were exported last."""
    state: str = ""
    changed: bool = True
    """Whether anything was counted, or its state became another, since it was exported."""
    ended: bool = False
    queued: bool = False
    is_new: bool = True
    active_at: float = 0.0
    idle_at: float = 0.0
    protocol: str = ""
    """That of its last requests."""
    requests: Requests = NONE
    """Since it was exported."""
    ends: Ends | None = None
    """By which requests find it."""

    def see(self, now: float, wall: float) -> None:
        """Note that there is something of it at these times. While the clock is set back, its own time continues.

        A record that ends before the last one, or before it starts, is dropped by collectors, with what it counts.
        """
        self.seen = wall if wall >= self.seen else self.seen + max(now - self.seen_at, 0.0)
        self.seen_at = max(now, self.seen_at)

    def written(self) -> FlowRecord:
        """The record that is due now; what it counts from now on is of the next one."""
        packets, octets, back, back_octets = self.counts
        deltas = [max(now - before, 0) for now, before in zip(self.counts, self.told, strict=True)]
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
            octet_total_count=octets,
            packet_delta_count=deltas[0],
            octet_delta_count=deltas[1],
            reverse_packet_total_count=back,
            reverse_octet_total_count=back_octets,
            reverse_packet_delta_count=deltas[2],
            reverse_octet_delta_count=deltas[3],
            tcp_state=self.state,
            app_protocol_name=self.protocol,
            http_vals=self.requests.text,
        )
        self.told, self.is_new, self.requests = self.counts, False, NONE
        return made


def _tracked(
    record: FlowRecord, entry: TrackedConnection, poll: _Poll, before: _Poll | None, ends: Ends | None
) -> Connection:
    """Found at a poll, where it was not there at the one before; None: there was none."""
    start = start_time(entry.start) or int(poll.wall - (poll.now - before.now) / 2 if before else poll.wall)
    snat_port = entry.source_port_seen if record.proxy_snat_ip else 0
    seen = max(poll.wall, start)
    return Connection(record, poll.now, seen, poll.now, entry.client[1], snat_port, start, ends=ends)


def is_unanswered(entry: TrackedConnection) -> bool:
    """Whether it has packets of one direction alone, as of one that another Node denies. What is not counted is taken as answered."""
    if entry.state:
        return entry.state == "SYN_SENT"
    return entry.packets > 0 and not entry.reply_packets


class _Poll(NamedTuple):
    """When all connections were looked at."""

    now: float
    """By the monotonic clock."""
    wall: float
    """In seconds of the epoch."""


class _Queue:
    """Connections by the time at which a record of theirs is due."""

    def __init__(self, active: float, idle: float) -> None:
        self._active, self._idle = active, idle
        self._heap: list[tuple[float, int, Connection]] = []
        self._order = count()
        self._forgotten = 0

    def forget(self, one: Connection) -> None:
        """Take it out at once: while the collector is away, what is due is taken out by nothing else."""
        one.queued = False
        self._forgotten += 1
        if self._forgotten > SLICE and 4 * self._forgotten >= len(self._heap):
            self._heap = [row for row in self._heap if row[2].queued]
            heapq.heapify(self._heap)
            self._forgotten = 0

    def put(self, one: Connection, now: float, *, at_once: bool = False) -> None:
        """Queue it, or let it wait for the idle timeout anew."""
        one.idle_at = now + self._idle
        if one.queued and not at_once:
            return  # found too early, it is put back
        one.active_at = now if at_once else now + self._active
        one.queued = True
        self._push(one, min(one.active_at, one.idle_at))

    def again(self, one: Connection, now: float) -> None:
        """After it was exported, while it has traffic."""
        one.active_at, one.queued = now + self._active, True
        self._push(one, min(one.active_at, max(one.idle_at, now)))

    def due(self, now: float, most: int) -> list[Connection]:
        """Take out those that are due."""
        found: list[Connection] = []
        while self._heap and self._heap[0][0] <= now and len(found) < most:
            _, _, one = heapq.heappop(self._heap)
            if not one.queued:
                continue
            at = min(one.active_at, one.idle_at)
            if at > now:
                self._push(one, at)
                continue
            one.queued = False
            found.append(one)
        return found

    def _push(self, one: Connection, at: float) -> None:
        heapq.heappush(self._heap, (at, next(self._order), one))


class ConnectionStore:
    """What connection tracking has, of this Node's Pods."""

    def __init__(
        self,
        active: float,
        idle: float,
        stale: float,
        *,
        requests: bool = False,
        most_ended: int = MAX_ENDED,
    ) -> None:
        """`requests`: connections are found by their ends."""
        self._queue = _Queue(active, idle)
        self._stale, self._requests, self._most_ended = stale, requests, most_ended
        self._by_ends: dict[Ends, Connection] = {}
        self._found: dict[Hashable, Connection | None] = {}
        self._gone: dict[Hashable, float] = {}
        """Since when those are tracked no more whose last record was not exported, the oldest first."""
        self.lost = 0
        """Connections whose last record was not exported in time: it waited too long, or too many did."""
        self._poll: _Poll | None = None
        """When all were looked at last, in seconds of the epoch."""
        self.begun = False
        """Whether there was an update: the first one takes all connections."""
        self.joined: set[Ends] = set()
        """Ends of connections that have got requests in the last update."""

    def __len__(self) -> int:
        return sum(1 for one in self._found.values() if one is not None)

    def update(
        self,
        changed: Iterable[TrackedConnection],
        gone: Iterable[TrackedConnection],
        now: float,
        wall: float,
        record_of: Callable[[TrackedConnection], FlowRecord | None],
    ) -> Iterator[None]:
        """Take in what has changed, in slices; what is gone has ended."""
        before, poll = self._poll, _Poll(now, wall)
        self.begun, self._poll = True, poll
        for number, entry in enumerate(changed, 1):
            if number % SLICE == 0:
                yield
            key: Hashable = entry.identity
            self._gone.pop(key, None)
            one = self._found.get(key)
            begins_anew = one is not None and one.ended and entry.state not in ENDED
            if key not in self._found or begins_anew:
                one = self._found[key] = self._begun(entry, record_of(entry), poll, before)
            if one is not None and not one.ended:
                self._take(one, entry, now, wall)
        for ended in gone:
            if ended.identity in self._found:
                self._gone.setdefault(ended.identity, now)
        for number, key in enumerate(list(self._gone), 1):
            if number % SLICE == 0:
                yield
            self._end(key, now, before)
        for key in list(self._gone)[: max(len(self._gone) - self._most_ended, 0)]:
            self._forget(key)

    def _begun(
        self, entry: TrackedConnection, record: FlowRecord | None, poll: _Poll, before: _Poll | None
    ) -> Connection | None:
        if record is None:
            return None
        ends = Ends(*entry.key[:3], entry.destination, entry.port) if self._requests else None
        one = _tracked(record, entry, poll, before, ends)
        if ends:
            self._by_ends[ends] = one
        return one

    def join(self, requests: Mapping[Ends, Requests], now: float) -> None:
        """Give requests that wait to their connections."""
        self.joined = set()
        for ends, found in requests.items():
            if one := self._by_ends.get(ends):
                self._join(one, ends, found, now)

    def _take(self, one: Connection, entry: TrackedConnection, now: float, wall: float) -> None:
        counts = (entry.packets, entry.octets, entry.reply_packets, entry.reply_octets)
        one.see(now, wall)
        if counts == one.counts and entry.state == one.state and not one.is_new:
            return
        one.counts, one.state, one.changed = counts, entry.state, True
        if entry.state in ENDED:
            one.ended = True
        self._queue.put(one, now, at_once=one.is_new and not one.queued and is_unanswered(entry))

    def _join(self, one: Connection, ends: Ends, found: Requests, now: float) -> None:
        one.changed = True
        if (both := spliced(one.requests, found)) is not None:
            one.requests = both
            self.joined.add(ends)
        # requests that come after the last record, or find no room in the next one, have a record of their own
        self._queue.put(one, now, at_once=one.ended or both is None)

    def _end(self, key: Hashable, now: float, before: _Poll | None) -> None:
        """It was there at the poll `before`."""
        one = self._found[key]
        if one is None or (one.ended and not one.queued) or now - self._gone[key] >= self._stale:
            self._forget(key)
        elif not one.ended:
            one.ended = True
            if before:
                one.see(*before)
            self._queue.put(one, now, at_once=True)

    def _forget(self, key: Hashable) -> None:
        one = self._found.pop(key)
        del self._gone[key]
        if one is None:
            return
        if one.ends and self._by_ends.get(one.ends) is one:
            del self._by_ends[one.ends]
        if one.queued or not one.ended:
            self.lost += 1
            self._queue.forget(one)

    def due(self, now: float, most: int) -> list[FlowRecord]:
        """Records that are to be exported now."""
        records = []
        for one in self._queue.due(now, most):
            if self._poll and not one.ended:
                one.see(*self._poll)
            records.append(one.written())
            one.exported = now
            active, one.changed = one.changed and not one.ended, False
            if active:
                self._queue.again(one, now)
        return records


class DeniedStore:
    """Connections that policies deny: each of their packets is sent to the agent."""

    def __init__(self, active: float, idle: float, most: int = MAX_DENIED) -> None:
        self._queue = _Queue(active, idle)
        self._most = most
        self._found: dict[Hashable, Connection] = {}
        self.lost = 0
        """Packets of connections for which there was no room."""

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self, key: Hashable, octets: int, now: float, wall: float, record: Callable[[], FlowRecord | None]
    ) -> None:
        """Count a packet of a connection, whose record is made if it is a new one."""
        one = self._found.get(key)
        if one is None:
            if len(self._found) >= self._most:
                self.lost += 1
                return
            made = record()
            if made is None:
                return
            port, snat_port = made.source_transport_port, made.proxy_snat_port
            one = self._found[key] = Connection(made, now, wall, now, port, snat_port, start=wall)
        packets, before, *_ = one.counts
        one.see(now, wall)
        one.counts, one.changed = (packets + 1, before + octets, 0, 0), True
        self._queue.put(one, now, at_once=one.is_new and not one.queued)

    def due(self, now: float, most: int) -> list[FlowRecord]:
        """Records that are to be exported now; a connection without a packet since the last one is forgotten."""
        records, quiet = [], False
        for one in self._queue.due(now, most):
            records.append(one.written())
            if one.changed:
                one.changed = False
                self._queue.again(one, now)
            else:
                one.ended = quiet = True
        if quiet:
            self._found = {key: one for key, one in self._found.items() if not one.ended}
        return records
