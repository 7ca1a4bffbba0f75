"""Store where requests of the engine wait for their flow records: HTTP requests, TLS server names, DNS queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis.flow import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.features.flow_export.l7_event import Ends, Seen

MAX_CONNECTIONS: Final = 4096
"""Maximum number of connections with waiting requests."""
MAX_REQUESTS: Final = 256
"""Maximum number of waiting requests of one connection."""
MAX_BYTES: Final = 8 << 20
"""Maximum number of bytes of all waiting requests."""
EMPTY: Final = 256
"""Approximate number of bytes that a request takes beside its text."""
MAX_RECORD_BYTES: Final = MAX_REQUEST_BYTES
"""Maximum number of bytes of the requests of one record."""
TIMEOUT: Final = 60.0
"""Seconds for which requests wait for connection tracking to show their connection."""


class Requests(NamedTuple):
    """Requests of one record: of one protocol, as JSON."""

    protocol: str = ""
    text: str = ""


NONE: Final = Requests()


class _Waiting(NamedTuple):
    since: float
    requests: dict[tuple[str, int], str]
    """Requests by protocol and number; a connection has several protocols when it begins TLS after a request, as through an
    HTTP proxy.
    """


def json_text(requests: Mapping[int, str]) -> tuple[str, list[int]]:
    """Encode the first requests that fit into a record, as Go writes a map: sorted by number as text; return their numbers,
    too.
    """
    parts: list[str] = []
    numbers: list[int] = []
    size = 2
    for number in sorted(requests, key=str):
        part = f'"{number}":{requests[number]}'
        size += len(part.encode()) + 1
        if size > MAX_RECORD_BYTES:
            break
        parts.append(part)
        numbers.append(number)
    return ("{" + ",".join(parts) + "}" if parts else ""), numbers


def spliced(first: Requests, other: Requests) -> Requests | None:
    """Merge both into one record; None if they are of different protocols, or too long."""
    if not first.text or not other.text:
        return first if first.text else other
    if first.protocol != other.protocol:
        return None
    text = f"{first.text[:-1]},{other.text[1:]}"
    return Requests(first.protocol, text) if len(text.encode()) <= MAX_RECORD_BYTES else None


class RequestStore:
    """Requests by connection, until records take them."""

    def __init__(self) -> None:
        self._waiting: dict[Ends, _Waiting] = {}
        self._memory = 0
        self._given: dict[Ends, list[tuple[str, int]]] = {}
        self.received = self.lost = 0
        """Number of requests; `lost`: there was no room, or no connection of theirs was found."""

    def __len__(self) -> int:
        return sum(len(waiting.requests) for waiting in self._waiting.values())

    def add(self, seen: Seen, now: float) -> None:
        """Store a request that came at `now`, in seconds of the monotonic clock; a later event on the same one replaces it."""
        key, waiting = (seen.protocol, seen.number), self._waiting.get(seen.ends)
        known = waiting is not None and key in waiting.requests
        self.received += not known
        full = (
            len(self._waiting) >= MAX_CONNECTIONS
            if waiting is None
            else len(waiting.requests) >= MAX_REQUESTS
        )
        if (full and not known) or self._memory + _memory_of(seen.text) > MAX_BYTES:
            self.lost += not known
            return
        waiting = waiting or self._waiting.setdefault(seen.ends, _Waiting(now, {}))
        self._forget(waiting, key)
        waiting.requests[key] = seen.text
        self._memory += _memory_of(seen.text)

    def texts(self) -> dict[Ends, Requests]:
        """Return JSON of the waiting requests, by connection: of the protocol that came first, as much as fits into a record."""
        self._given, made = {}, {}
        for ends, waiting in self._waiting.items():
            protocol = next(iter(waiting.requests))[0]
            texts = {number: text for (name, number), text in waiting.requests.items() if name == protocol}
            text, numbers = json_text(texts)
            made[ends] = Requests(protocol, text)
            self._given[ends] = [(protocol, number) for number in numbers]
        return made

    def taken(self, those: Iterable[Ends], now: float) -> None:
        """Remove requests that records took from the last `texts`, and those that no record has taken in TIMEOUT."""
        for ends in those:
            waiting = self._waiting[ends]
            for key in self._given[ends]:
                self._forget(waiting, key)
            self._waiting[ends] = waiting._replace(since=now)
        for ends, waiting in list(self._waiting.items()):
            if waiting.requests and now - waiting.since > TIMEOUT:
                self.lost += len(waiting.requests)
                for key in list(waiting.requests):
                    self._forget(waiting, key)
            if not waiting.requests:
                del self._waiting[ends]

    def _forget(self, waiting: _Waiting, key: tuple[str, int]) -> None:
        if before := waiting.requests.pop(key, None):
            self._memory -= _memory_of(before)


def _memory_of(text: str) -> int:
    """Return the approximate memory of a text."""
    return EMPTY + len(text)
