"""DNS answers in TCP: the messages of streams, put together from the segments that the switch holds back.

What does not come in order is left out: the Pod gets it, and its addresses are not learned.
Source: RFC 9293, 3.1 (header), RFC 7766, 8 (length before each message)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from antrea.openflow.packet import Packet

    Key = tuple[str, str, int, int]

MOST_STREAMS = 256
"""With a part of a message; those that were used least recently are forgotten."""
MOST_OCTETS = (1 << 16) + 2
"""Of one message with its length."""
_SYN, _HEADER = 0x02, 20


class _Stream(NamedTuple):
    expected: int
    """Sequence number of what comes next."""
    data: bytes
    """The beginning of a message."""


class DnsStreams:
    """The streams whose last segment ended within a message."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Key, _Stream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def messages(self, segment: Packet) -> list[bytes]:
        """The messages that end in this segment."""
        ports, header = segment.ports, segment.payload[:_HEADER]
        if ports is None or len(header) < _HEADER:
            return []
        key = (segment.source, segment.destination, *ports)
        before = self._streams.pop(key, None)
        data = segment.payload[(header[12] >> 4) * 4 :]
        sequence = int.from_bytes(header[4:8])
        if header[13] & _SYN:
            return []
        if not data:
            if before is not None:
                self._streams[key] = before
            return []
        whole = before.data + data if before is not None and before.expected == sequence else data
        found, rest = _messages(whole)
        if rest and len(rest) <= MOST_OCTETS:
            self._streams[key] = _Stream((sequence + len(data)) & 0xFFFFFFFF, rest)
            if len(self._streams) > MOST_STREAMS:
                self._streams.popitem(last=False)
        return found


def _messages(stream: bytes) -> tuple[list[bytes], bytes]:
    """The whole messages at the beginning, and what is left."""
    found, at = [], 0
    while len(stream) - at >= 2:
        end = at + 2 + int.from_bytes(stream[at : at + 2])
        if end > len(stream):
            break
        found.append(stream[at + 2 : end])
        at = end
    return found, stream[at:]
