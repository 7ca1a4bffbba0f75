"""HTTP requests as the engine writes them, and where they wait for the records of their connections.

Clients and servers choose every text in them: all of it has a limit, and leaves as JSON.
Source: docs.suricata.io/en/suricata-7.0.10/output/eve/eve-json-format.html
parity: pkg/agent/flowexporter/connections/l7_listener.go (the fields of a request and their order)
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from antrea.apis.flow import LONGEST_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_CONNECTIONS: Final = 4096
"""Connections whose requests wait at a time."""
MOST_REQUESTS: Final = 256
"""Requests of one connection that wait at a time."""
MOST_OCTETS: Final = 8 << 20
"""Of all that waits."""
EMPTY: Final = 256
"""Octets of a request without texts, about."""
LONGEST: Final = LONGEST_REQUESTS
"""Octets of the requests of one record."""
PATIENCE: Final = 60.0
"""Seconds for which requests wait for connection tracking to show their connection."""
PROTOCOL: Final = "http"
_TEXTS: Final = {
    "hostname": 256, "url": 1024, "http_user_agent": 256, "http_content_type": 128, "http_method": 32, "protocol": 16,
}  # fmt: skip
"""Characters of each text; the rest is cut off."""
_LARGEST: Final = 0x7FFFFFFF
_HTML: Final = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}
_CONTROLS: Final = re.compile(r"[\x7f-\x9f]")


class HttpRequest(msgspec.Struct, gc=False):
    """A request with its answer; the order of the fields is that of records."""

    hostname: str = ""
    url: str = ""
    http_user_agent: str = ""
    http_content_type: str = ""
    http_method: str = ""
    protocol: str = ""
    status: int = 0
    length: int = 0


class _Event(msgspec.Struct, gc=False):
    event_type: str = ""
    src_ip: str = ""
    src_port: int = 0
    dest_ip: str = ""
    dest_port: int = 0
    tx_id: int = 0
    http: HttpRequest | None = None


class Ends(NamedTuple):
    """Of a TCP connection, as its first packet had them."""

    source: str
    source_port: int
    destination: str
    destination_port: int


class _Waiting(NamedTuple):
    since: float
    requests: dict[int, HttpRequest]


def parsed(line: bytes) -> tuple[Ends, int, HttpRequest] | None:
    """The request of a line, and its number in its connection; None: it is about something else.

    Raises ValueError for a line that is no such event.
    """
    try:
        event = _DECODER.decode(line)
    except RecursionError:
        raise ValueError("too deep to be an event") from None
    request = event.http
    if event.event_type != PROTOCOL or request is None:
        return None
    ends = Ends(
        str(ip_address(event.src_ip)),
        _port(event.src_port),
        str(ip_address(event.dest_ip)),
        _port(event.dest_port),
    )
    for name, most in _TEXTS.items():
        setattr(request, name, _CONTROLS.sub("\ufffd", getattr(request, name)[:most]))
    request.status, request.length = _bounded(request.status), _bounded(request.length)
    return ends, _bounded(event.tx_id), request


_DECODER: Final = msgspec.json.Decoder(_Event)


def _port(number: int) -> int:
    if not 0 <= number <= 0xFFFF:
        raise ValueError(f"{number} is no port")
    return number


def _bounded(number: int) -> int:
    return min(max(number, 0), _LARGEST)


def json_text(requests: Mapping[int, HttpRequest]) -> tuple[str, list[int]]:
    """The first ones that a record has room for, as Go writes a map: sorted by number as text, with what HTML gives a meaning
    escaped; and their numbers."""
    parts: list[str] = []
    numbers: list[int] = []
    size = 2
    for number in sorted(requests, key=str):
        text = msgspec.json.encode(requests[number]).decode().translate(_HTML)
        part = f'"{number}":{text}'
        size += len(part.encode()) + 1
        if size > LONGEST:
            break
        parts.append(part)
        numbers.append(number)
    return ("{" + ",".join(parts) + "}" if parts else ""), numbers


def spliced(one: str, other: str) -> str | None:
    """Two texts of `json_text` as one; None: a record has no room for both."""
    if not one or not other:
        return one or other
    text = f"{one[:-1]},{other[1:]}"
    return text if len(text.encode()) <= LONGEST else None


class RequestStore:
    """Requests by connection, until records take them."""

    def __init__(self) -> None:
        self._waiting: dict[Ends, _Waiting] = {}
        self._octets = 0
        self._given: dict[Ends, list[int]] = {}
        self.received = self.lost = 0
        """Requests; `lost`: there was no room, or no connection of theirs was found."""

    def __len__(self) -> int:
        return sum(len(one.requests) for one in self._waiting.values())

    def add(self, ends: Ends, number: int, request: HttpRequest, now: float) -> None:
        """Keep a request that came at `now`, in seconds of the monotonic clock."""
        self.received += 1
        one = self._waiting.get(ends)
        full = len(self._waiting) >= MOST_CONNECTIONS if one is None else len(one.requests) >= MOST_REQUESTS
        if full or self._octets + _octets(request) > MOST_OCTETS:
            self.lost += 1
            return
        one = one or self._waiting.setdefault(ends, _Waiting(now, {}))
        self._forget(one, number)
        one.requests[number] = request
        self._octets += _octets(request)

    def texts(self) -> dict[Ends, str]:
        """JSON of what waits, by connection: as much of each as a record has room for."""
        made = {ends: json_text(one.requests) for ends, one in self._waiting.items()}
        self._given = {ends: numbers for ends, (_, numbers) in made.items()}
        return {ends: text for ends, (text, _) in made.items()}

    def taken(self, those: Iterable[Ends], now: float) -> None:
        """Forget what records have of the last `texts`, and what no record has taken in PATIENCE."""
        for ends in those:
            one = self._waiting[ends]
            for number in self._given[ends]:
                self._forget(one, number)
            self._waiting[ends] = one._replace(since=now)
        for ends, one in list(self._waiting.items()):
            if one.requests and now - one.since > PATIENCE:
                self.lost += len(one.requests)
                for number in list(one.requests):
                    self._forget(one, number)
            if not one.requests:
                del self._waiting[ends]

    def _forget(self, one: _Waiting, number: int) -> None:
        if before := one.requests.pop(number, None):
            self._octets -= _octets(before)


def _octets(request: HttpRequest) -> int:
    """About what it takes to keep one."""
    return EMPTY + sum(len(getattr(request, name)) for name in _TEXTS)
