"""Events of the engine on application protocols: a request, the server name of TLS, a DNS query, each as JSON of a record.

Clients and servers choose every text in it: all of it has a limit, and leaves as JSON.
Source: docs.suricata.io/en/suricata-7.0.10/output/eve/eve-json-format.html
parity: pkg/agent/flowexporter/connections/l7_listener.go (the fields of a request of HTTP and their order)
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from antrea.decoding import guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

HTTP, TLS, DNS = "http", "tls", "dns"
"""Names of protocols in records. Requests of HTTP/2 have the same fields as those of HTTP/1, and the same name."""
MAX_ANSWERS: Final = 8
"""Maximum number of answers to one query in a record."""
PROTOCOLS: Final[Mapping[str, int]] = {"TCP": 6, "UDP": 17}
_MAX_BYTES: Final = 256
"""Maximum number of bytes of a text without a limit of its own, as JSON; the rest is cut off."""
MAX_OF_ONE: Final = 6
"""Maximum number of bytes of one character in JSON."""
_LIMITS: Final = {
    "url": 1024,
    "http_content_type": 128,
    "http_method": 32,
    "protocol": 16,
    "version": 16,
    "rrtype": 16,
    "rcode": 16,
}
_MAX_VALUE: Final = 0x7FFFFFFF
_HTML: Final = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_CONTROLS: Final = re.compile(r"[\x7f-\x9f]")


class Ends(NamedTuple):
    """Ends of a connection, as its first packet had them."""

    protocol: int
    source: str
    source_port: int
    destination: str
    destination_port: int


class Seen(NamedTuple):
    """Event: `number` is that of the request in its connection, `text` the JSON of its fields."""

    ends: Ends
    protocol: str
    number: int
    text: str


class HttpFields(msgspec.Struct, gc=False):
    """Fields of a request with its answer, in the order of records."""

    hostname: str = ""
    url: str = ""
    http_user_agent: str = ""
    http_content_type: str = ""
    http_method: str = ""
    protocol: str = ""
    status: int = 0
    length: int = 0


class HttpRequest(HttpFields, gc=False):
    """Request in a record."""

    grpc_status: int | msgspec.UnsetType = msgspec.UNSET
    """Status of gRPC alone."""


class TlsSession(msgspec.Struct, gc=False):
    """Server name that a client requests, which is not encrypted."""

    sni: str = ""
    version: str = ""


class Lookup(msgspec.Struct, gc=False):
    """DNS query; `rcode` is empty before its answer."""

    rrname: str = ""
    rrtype: str = ""
    rcode: str = ""
    answers: list[str] = []


class _Header(msgspec.Struct, gc=False):
    name: str = ""
    value: str = ""


class _Stream(msgspec.Struct, gc=False):
    stream_id: int = 0


class _Http(HttpFields, gc=False):
    request_headers: list[_Header] = []
    response_headers: list[_Header] = []
    http2: _Stream | None = None


class _Answer(msgspec.Struct, gc=False):
    rdata: str = ""


class _Dns(msgspec.Struct, gc=False):
    id: int = 0
    rrname: str = ""
    rrtype: str = ""
    rcode: str = ""
    answers: list[_Answer] = []


class _Event(msgspec.Struct, gc=False):
    event_type: str = ""
    src_ip: str = ""
    src_port: int = 0
    dest_ip: str = ""
    dest_port: int = 0
    proto: str = ""
    tx_id: int = 0
    http: _Http | None = None
    tls: TlsSession | None = None
    dns: _Dns | None = None


_DECODER: Final = msgspec.json.Decoder(_Event)


def parsed(line: bytes) -> Seen | None:
    """Parse a line of the engine; None if records have nothing of it. Raises Invalid for a line that is not such an event."""
    return guarded("event", _parsed, line)


def _parsed(line: bytes) -> Seen | None:
    event = _DECODER.decode(line)
    parts = _fields(event)
    if parts is None or event.proto not in PROTOCOLS:
        return None
    number, fields = parts
    source, destination = str(ip_address(event.src_ip)), str(ip_address(event.dest_ip))
    ends = Ends(PROTOCOLS[event.proto], source, _port(event.src_port), destination, _port(event.dest_port))
    return Seen(ends, event.event_type, _bounded(number), text_of(fields))


def _fields(event: _Event) -> tuple[int, HttpRequest | TlsSession | Lookup] | None:
    if event.event_type == HTTP and event.http:
        return _of_http2(event.http) if event.http.http2 else (event.tx_id, _of_http(event.http))
    if event.event_type == TLS and event.tls:
        return event.tx_id, event.tls
    if event.event_type == DNS and event.dns:
        dns = event.dns
        answers = [answer.rdata for answer in dns.answers[:MAX_ANSWERS] if answer.rdata]
        # question and answer have one number: the answer takes the place of the question
        return dns.id, Lookup(dns.rrname, dns.rrtype, dns.rcode, answers)
    return None


def _of_http(http: _Http) -> HttpRequest:
    return HttpRequest(*(getattr(http, name) for name in HttpFields.__struct_fields__))


def _of_http2(http: _Http) -> tuple[int, HttpRequest] | None:
    """Return a request of a stream that the client has opened, which has an odd number; other streams have no request."""
    number, odd = divmod(http.http2.stream_id if http.http2 else 0, 2)
    if not odd or not http.http_method:
        return None
    requested = {header.name: header.value for header in http.request_headers}
    got = {header.name: header.value for header in http.response_headers}
    request = _of_http(http)
    request.hostname, request.protocol = request.hostname or requested.get(":authority", ""), "HTTP/2"
    request.http_content_type = got.get("content-type", "")
    if (status := got.get("grpc-status", "")[:3]).isdecimal():
        request.grpc_status = int(status)
    return number, request


def text_of(fields: HttpRequest | TlsSession | Lookup) -> str:
    """Encode as JSON, within the limits, with characters of HTML escaped."""
    for name in fields.__struct_fields__:
        value = getattr(fields, name)
        if isinstance(value, str):
            setattr(fields, name, _cut(value, _LIMITS.get(name, _MAX_BYTES)))
        elif isinstance(value, int):
            setattr(fields, name, _bounded(value))
        elif isinstance(value, list):
            setattr(fields, name, [_cut(text, _MAX_BYTES) for text in value])
    return _escaped(fields)


def _cut(text: str, most: int) -> str:
    """Cut a text to this many bytes in JSON: a text too long for a record would never leave."""
    text = _CONTROLS.sub("\ufffd", text[:most])
    while (over := len(_escaped(text).encode()) - most - len('""')) > 0:
        text = text[: len(text) - -(-over // MAX_OF_ONE)]
    return text


def _escaped(fields: object) -> str:
    return msgspec.json.encode(fields).decode().translate(_HTML)


def _port(number: int) -> int:
    if not 0 <= number <= 0xFFFF:
        raise ValueError(f"{number} is not a port")
    return number


def _bounded(number: int) -> int:
    return min(max(number, 0), _MAX_VALUE)
