"""DNS answers in TCP: the messages of streams, assembled from the segments that the switch holds back.

A repeated segment gives its messages again: a server that waits for the confirmation of a held segment sends it again (RFC
8985, 7: after two round trips), and that one must not overtake. A segment that does not continue the stream is left out: the
client gets it, and its addresses are not learned.
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
"""Maximum number of streams; the least recently used ones of the client with the most are dropped."""
MAX_MESSAGES = 16
"""Maximum number of messages with a part in one segment: servers send one answer at a time."""
MIN_MESSAGE = 12
"""Bytes of the header of a DNS message."""
MAX_BYTES = (1 << 16) + 2
"""Maximum number of bytes of a stream: one message with its length, and as many before it as there is room for."""
_SYN, _HEADER, _LENGTH, _SEQUENCES = 0x02, 20, 2, 1 << 32


class _Stream(NamedTuple):
    start: int
    """Sequence number of the first byte, with which a message begins."""
    data: bytes


class DnsStreams:
    """Latest bytes of streams."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Key, _Stream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def messages(self, segment: Packet) -> list[bytes]:
        """Return the complete messages with a part in this segment. Raises Invalid for anything else than DNS messages."""
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
        messages = [
            stream.data[begin + _LENGTH : end] for begin, end in spans if begin < at + len(data) and end > at
        ]
        if len(messages) > MAX_MESSAGES:
            raise Invalid("DNS stream", f"{len(messages)} messages in one segment")
        return messages

    def _keep(self, key: Key, stream: _Stream) -> None:
        if len(stream.data) <= MAX_BYTES:
            self._streams[key] = stream
            if len(self._streams) > MAX_STREAMS:
                counts = Counter(client for _, client, *_ in self._streams)
                client = max(counts, key=counts.__getitem__)
                del self._streams[next(key for key in self._streams if key[1] == client)]


def _extended(before: _Stream | None, sequence: int, data: bytes) -> _Stream:
    """Return the stream with a segment's bytes, where they continue or replace some of it; else only these."""
    if before is None or (at := (sequence - before.start) % _SEQUENCES) > len(before.data):
        return _Stream(sequence, data)
    return _Stream(before.start, before.data[:at] + data + before.data[at + len(data) :])


def _shortened(stream: _Stream, spans: list[tuple[int, int]]) -> _Stream:
    """Return the stream without its first messages, as far as it is too long."""
    cut = next((end for _, end in spans if len(stream.data) - end <= MAX_BYTES), 0)
    return (
        stream
        if len(stream.data) <= MAX_BYTES
        else _Stream((stream.start + cut) % _SEQUENCES, stream.data[cut:])
    )


def _spans(stream: bytes) -> list[tuple[int, int]]:
    """Return start, with the length, and end of each complete message. Raises Invalid."""
    spans, at = [], 0
    while len(stream) - at >= _LENGTH:
        length = int.from_bytes(stream[at : at + _LENGTH])
        if length < MIN_MESSAGE:
            raise Invalid("DNS stream", f"a message of {length} bytes")
        end = at + _LENGTH + length
        if end > len(stream):
            break
        spans.append((at, end))
        at = end
    return spans
