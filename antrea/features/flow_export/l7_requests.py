"""Where requests, as the engine writes them, wait for the records of their connections: requests of HTTP, server names of TLS, look-ups of DNS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis.flow import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.features.flow_export.l7_event import Ends, Seen

MAX_CONNECTIONS: Final = 4096
"""Connections whose requests wait at a time."""
MAX_REQUESTS: Final = 256
"""Requests of one connection that wait at a time."""
MAX_BYTES: Final = 8 << 20
"""Of all that waits."""
EMPTY: Final = 256
"""Octets that keeping a request takes beside its text, about."""
MAX_RECORD_BYTES: Final = MAX_REQUEST_BYTES
"""Octets of the requests of one record."""
TIMEOUT: Final = 60.0
"""Seconds for which requests wait for connection tracking to show their connection."""


class Requests(NamedTuple):
    """Of one record: of one protocol, as JSON."""

    protocol: str = ""
    text: str = ""


NONE: Final = Requests()


class _Waiting(NamedTuple):
    since: float
    requests: dict[tuple[str, int], str]
    """By protocol and number; a connection has several protocols when it begins TLS after a request, as through an HTTP proxy."""


def json_text(requests: Mapping[int, str]) -> tuple[str, list[int]]:
    """The first ones that a record has room for, as Go writes a map: sorted by number as text; and their numbers."""
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


def spliced(one: Requests, other: Requests) -> Requests | None:
    """Both as those of one record; None: they are of different protocols, or a record has no room for both."""
    if not one.text or not other.text:
        return one if one.text else other
    if one.protocol != other.protocol:
        return None
    text = f"{one.text[:-1]},{other.text[1:]}"
    return Requests(one.protocol, text) if len(text.encode()) <= MAX_RECORD_BYTES else None


class RequestStore:
    """Requests by connection, until records take them."""

    def __init__(self) -> None:
        self._waiting: dict[Ends, _Waiting] = {}
        self._octets = 0
        self._given: dict[Ends, list[tuple[str, int]]] = {}
        self.received = self.lost = 0
        """Requests; `lost`: there was no room, or no connection of theirs was found."""

    def __len__(self) -> int:
        return sum(len(one.requests) for one in self._waiting.values())

    def add(self, seen: Seen, now: float) -> None:
        """Keep a request that came at `now`, in seconds of the monotonic clock; a later event about the same one takes its place."""
        key, one = (seen.protocol, seen.number), self._waiting.get(seen.ends)
        known = one is not None and key in one.requests
        self.received += not known
        full = len(self._waiting) >= MAX_CONNECTIONS if one is None else len(one.requests) >= MAX_REQUESTS
        if (full and not known) or self._octets + _octets(seen.text) > MAX_BYTES:
            self.lost += not known
            return
        one = one or self._waiting.setdefault(seen.ends, _Waiting(now, {}))
        self._forget(one, key)
        one.requests[key] = seen.text
        self._octets += _octets(seen.text)

    def texts(self) -> dict[Ends, Requests]:
        """JSON of what waits, by connection: of the protocol that came first, as much as a record has room for."""
        self._given, made = {}, {}
        for ends, one in self._waiting.items():
            protocol = next(iter(one.requests))[0]
            own = {number: text for (name, number), text in one.requests.items() if name == protocol}
            text, numbers = json_text(own)
            made[ends] = Requests(protocol, text)
            self._given[ends] = [(protocol, number) for number in numbers]
        return made

    def taken(self, those: Iterable[Ends], now: float) -> None:
        """Forget what records have of the last `texts`, and what no record has taken in TIMEOUT."""
        for ends in those:
            one = self._waiting[ends]
            for key in self._given[ends]:
                self._forget(one, key)
            self._waiting[ends] = one._replace(since=now)
        for ends, one in list(self._waiting.items()):
            if one.requests and now - one.since > TIMEOUT:
                self.lost += len(one.requests)
                for key in list(one.requests):
                    self._forget(one, key)
            if not one.requests:
                del self._waiting[ends]

    def _forget(self, one: _Waiting, key: tuple[str, int]) -> None:
        if before := one.requests.pop(key, None):
            self._octets -= _octets(before)


def _octets(text: str) -> int:
    """About what it takes to keep it."""
    return EMPTY + len(text)
