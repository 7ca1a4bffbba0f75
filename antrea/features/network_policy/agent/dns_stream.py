"""DNS answers in TCP: the messages of streams, put together from the segments that the switch holds back.

A segment that comes once more gives its messages once more: a server that waits for the confirmation of a segment which is held
sends it again (RFC 8985, 7: after two round trips), and that one must not overtake. What does not follow on what came before is
left out: the client gets it, and its addresses are not learned.
Source: RFC 9293, 3.1 (header), RFC 7766, 8 (length before each message)
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from antrea.errors import Invalid

if TYPE_CHECKING:
    from antrea.openflow.packet import Packet

    Key = tuple[str, str, int, int]

MAX_STREAMS = 256
"""Of the client with the most, those that were used least recently are forgotten."""
MAX_MESSAGES = 16
"""Messages of which one segment may have a part: servers send one answer at a time."""
MIN_MESSAGE = 12
"""Bytes of the header of a DNS message."""
MAX_BYTES = (1 << 16) + 2
"""Kept of a stream: one message with its length at most, and as many before it as there is room for."""
_SYN, _HEADER, _LENGTH, _SEQUENCES = 0x02, 20, 2, 1 << 32


class _Stream(NamedTuple):
    start: int
    """Sequence number of the first octet, with which a message begins."""
    data: bytes


class DnsStreams:
    """The latest octets of streams."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Key, _Stream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def messages(self, segment: Packet) -> list[bytes]:
        """The whole messages of which this segment has a part. Raises Invalid for what is no stream of DNS messages."""
        ports, header = segment.ports, segment.payload[:_HEADER]
        if ports is None or len(header) < _HEADER:
            return []
        key = (segment.source, segment.destination, *ports)
        before = self._streams.pop(key, None)
        data = segment.payload[(header[12] >> 4) * 4 :]
        if header[13] & _SYN:
            return []
        if not data:
            if before is not None:
                self._streams[key] = before
            return []
        sequence = int.from_bytes(header[4:8])
        stream = _extended(before, sequence, data)
        spans = _spans(stream.data)
        self._keep(key, _shortened(stream, spans))
        at = (sequence - stream.start) % _SEQUENCES
        found = [
            stream.data[begin + _LENGTH : end] for begin, end in spans if begin < at + len(data) and end > at
        ]
        if len(found) > MAX_MESSAGES:
            raise Invalid("DNS stream", f"{len(found)} messages in one segment")
        return found

    def _keep(self, key: Key, stream: _Stream) -> None:
        if len(stream.data) <= MAX_BYTES:
            self._streams[key] = stream
            if len(self._streams) > MAX_STREAMS:
                counts = Counter(client for _, client, *_ in self._streams)
                client = max(counts, key=counts.__getitem__)
                del self._streams[next(key for key in self._streams if key[1] == client)]


def _extended(before: _Stream | None, sequence: int, data: bytes) -> _Stream:
    """With the octets of a segment, where they follow on what there is or replace some of it; else these alone."""
    if before is None or (at := (sequence - before.start) % _SEQUENCES) > len(before.data):
        return _Stream(sequence, data)
    return _Stream(before.start, before.data[:at] + data + before.data[at + len(data) :])


def _shortened(stream: _Stream, spans: list[tuple[int, int]]) -> _Stream:
    """Without the first messages, as far as it is too long."""
    cut = next((end for _, end in spans if len(stream.data) - end <= MAX_BYTES), 0)
    return (
        stream
        if len(stream.data) <= MAX_BYTES
        else _Stream((stream.start + cut) % _SEQUENCES, stream.data[cut:])
    )


def _spans(stream: bytes) -> list[tuple[int, int]]:
    """Where each whole message begins, with its length, and ends. Raises Invalid."""
    found, at = [], 0
    while len(stream) - at >= _LENGTH:
        length = int.from_bytes(stream[at : at + _LENGTH])
        if length < MIN_MESSAGE:
            raise Invalid("DNS stream", f"a message of {length} bytes")
        end = at + _LENGTH + length
        if end > len(stream):
            break
        found.append((at, end))
        at = end
    return found
