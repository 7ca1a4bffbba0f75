"""Stream of copied connections from the holder of addresses to one other Node: numbered batches, and what their receiver makes of them.

Gossip carries the batches, sealed, in order, and may lose them. A stream begins with number 0 and a snapshot of each address. A
number that is missing ends it at the receiver, who asks for another one. A stream that was ended never continues: what arrives of
it later is stale. A record is what antrea/outside/netlink/copied_connection.py makes of a connection.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeAlias

import msgspec

from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK: Final = 500
"""Records of one message: with 50 messages a second 25,000 records, 400 kB of IPv4."""
MAX_PENDING: Final = 20_000
"""Changes that wait for a stream. If there are more, its snapshots are sent anew."""
PAST: Final = 16
"""Ended streams that a receiver remembers."""
RECORD: Final = {4: 16, 16: 40}
"""Bytes of a record by those of an address."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
BEGIN, END = 1, 2
"""Marks of a batch: a snapshot of the address begins with it, or ends with it."""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Changes of one address: what ended, and then what is new, which may have a port of that."""

    stream: Count
    number: Count
    ip: Annotated[bytes, msgspec.Meta(max_length=16)] = b""
    """Address that others see; empty: nothing has changed."""
    mark: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
    put: bytes = b""
    """Records, one behind the other."""
    ended: bytes = b""


class Receipt(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """State of a stream at its receiver."""

    stream: Count
    """0: none."""
    asks: bool
    """A new stream is wanted."""
    whole: bool
    """All snapshots that began have ended."""
    refused: Count
    """Records that the kernel refused."""
    full: bool
    """Because its table is full."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Batch | Receipt] = msgspec.msgpack.Decoder(Batch | Receipt)


def encode_copy(message: Batch | Receipt) -> bytes:
    """Encode a message in MessagePack."""
    return _ENCODER.encode(message)


def decode_copy(data: bytes) -> Batch | Receipt:
    """Raises Invalid, also for records that are cut."""
    message = guarded("copied connections", _DECODER.decode, data)
    if isinstance(message, Batch) and message.ip:
        size = RECORD.get(len(message.ip), 0)
        if not size or len(message.put) % size or len(message.ended) % size:
            raise Invalid("copied connections", "records are cut")
    return message


def split(records: bytes, ip: bytes) -> list[bytes]:
    """Return the records of a batch of this address."""
    size = RECORD[len(ip)]
    return [records[start : start + size] for start in range(0, len(records), size)]


def identity(record: bytes) -> bytes:
    """Return a record without its state, which changes."""
    return record[:1] + record[2:]


class OutgoingStream:
    """Changes and snapshots for one receiver."""

    def __init__(self, stream: int) -> None:
        """`stream` differs from all earlier ones of any sender."""
        self.stream, self._number = stream, 0
        self._ips: set[bytes] = set()
        self.due: set[bytes] = set()
        """Addresses whose snapshot is to be loaded."""
        self._loaded: dict[bytes, dict[bytes, bytes]] = {}
        """Rest of each snapshot, by identity."""
        self._changes: dict[bytes, dict[bytes, tuple[bytes, bool]]] = {}
        self._ready: deque[Batch] = deque()
        self.sent = 0
        """Records."""

    def follow(self, ips: Iterable[bytes]) -> None:
        """Send these addresses. One that was sent before gets an empty snapshot: the receiver has none of its connections then."""
        wanted = set(ips)
        for ip in self._ips - wanted:
            self._forget(ip)
            self._ready.append(self._batch(ip, BEGIN | END))
        self.due |= wanted - self._ips
        self._ips = wanted

    def repeat(self) -> None:
        """Load all snapshots anew."""
        for ip in self._ips:
            self._forget(ip)
        self.due |= self._ips

    def _forget(self, ip: bytes) -> None:
        self._loaded.pop(ip, None)
        self._changes.pop(ip, None)
        self.due.discard(ip)

    def change(self, ip: bytes, record: bytes, *, ended: bool) -> None:
        """A connection is new, or ended; of one that did both meanwhile nothing is sent."""
        if ip not in self._ips:
            return
        changes, key = self._changes.setdefault(ip, {}), identity(record)
        loaded = self._loaded.get(ip)
        in_snapshot = loaded is not None and loaded.pop(key, None) is not None
        before = changes.pop(key, None)
        if ended and before is not None and not before[1] and not in_snapshot:
            return
        changes[key] = (record, ended)
        if len(changes) > MAX_PENDING:
            self._forget(ip)
            self.due.add(ip)

    def begin(self, ip: bytes) -> None:
        """The snapshot of this address is about to be taken: what the receiver has of it so far may be old."""
        self.due.discard(ip)
        self._changes.pop(ip, None)
        self._ready.append(self._batch(ip, BEGIN))

    def load(self, ip: bytes, records: Iterable[bytes]) -> None:
        """Send this snapshot, taken after `begin`."""
        self._loaded[ip] = {identity(record): record for record in records}

    @property
    def busy(self) -> bool:
        """Whether there is more to send."""
        return bool(self._ready or self._loaded or self._changes or self.due)

    @property
    def is_over(self) -> bool:
        """Whether nothing is copied any more, and the receiver has an empty snapshot."""
        return not self._ips and not self.busy

    def batches(self, *, alive: bool = False) -> Iterator[Batch]:
        """Yield what is to be sent now, one message of each address; with `alive` at least an empty one."""
        number = self._number
        while self._ready:
            yield self._ready.popleft()
        for ip in [*self._changes]:
            yield self._changed(ip)
        for ip in [*self._loaded]:
            yield self._part(ip)
        if alive and number == self._number:
            yield self._batch(b"", 0)

    def _changed(self, ip: bytes) -> Batch:
        changes = self._changes[ip]
        rows = [changes.pop(key) for key in [*changes][:CHUNK]]
        if not changes:
            del self._changes[ip]
        self.sent += len(rows)
        new = b"".join(record for record, ended in rows if not ended)
        return self._batch(ip, 0, new, b"".join(record for record, ended in rows if ended))

    def _part(self, ip: bytes) -> Batch:
        loaded = self._loaded[ip]
        rows = [loaded.pop(key) for key in [*loaded][:CHUNK]]
        if not loaded:
            del self._loaded[ip]
        self.sent += len(rows)
        return self._batch(ip, 0 if loaded else END, b"".join(rows))

    def _batch(self, ip: bytes, mark: int, put: bytes = b"", ended: bytes = b"") -> Batch:
        self._number += 1
        return Batch(self.stream, self._number - 1, ip, mark, put, ended)


class Verdict(NamedTuple):
    """Decision on a batch."""

    accept: bool
    asks: bool = False
    """Ask for another stream."""
    why: str = ""
    """Why it is refused."""


class IncomingStream:
    """Order of the batches of one sender."""

    def __init__(self) -> None:
        self.stream, self._next = 0, 0
        self._past: deque[int] = deque(maxlen=PAST)
        self.open: set[bytes] = set()
        """Addresses whose snapshot has begun and not ended."""

    def receive(self, batch: Batch) -> Verdict:
        """Judge a batch by its place."""
        if batch.stream in self._past:
            return Verdict(accept=False, why="stale")
        if batch.stream != self.stream:
            if batch.number:
                return Verdict(accept=False, asks=True, why="gap")
            self.end()
            self.stream, self._next = batch.stream, 0
        if batch.number < self._next:
            return Verdict(accept=False, why="replayed")
        if batch.number > self._next:
            self.end()
            return Verdict(accept=False, asks=True, why="gap")
        self._next += 1
        if batch.mark & BEGIN:
            self.open.add(batch.ip)
        if batch.mark & END:
            self.open.discard(batch.ip)
        return Verdict(accept=True)

    def end(self) -> None:
        """Accept nothing of this stream any more."""
        if self.stream:
            self._past.append(self.stream)
        self.stream = 0
        self.open.clear()
