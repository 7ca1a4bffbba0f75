"""Reads messages of an exporting process: bounded, since anybody may send them.

Elements without a field in a FlowRecord are skipped by their length; what is malformed ends the message, and is Invalid.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from antrea.apis.flow import LONGEST_REQUESTS, LONGEST_TEXT, FlowRecord
from antrea.errors import Invalid
from antrea.ipfix.element import BY_NUMBER, VARIABLE
from antrea.ipfix.message import HEADER, SET, TEMPLATE_SET, VERSION
from antrea.ipfix.template import FIRST_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTIONS_SET: Final = 3
MOST_TEMPLATES: Final = 64
"""Of one session."""
MOST_FIELDS: Final = 256
"""Of one template."""
MOST_SESSION_FIELDS: Final = 512
"""Of all templates of one session."""
MOST_RECORDS: Final = 4096
"""Of one message."""
SHARED: Final = 32_768
"""Texts and addresses of which records that have the same share one."""
LONGEST_SHARED: Final = 96
"""Octets of a text that is shared: what anybody sends fills no memory."""
FEW: Final = 4
"""Fields of stated sizes that are read together."""
_NUMBERS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_number: Final = int.from_bytes
_NUMBER_KINDS: Final = ("u8", "u16", "u32", "u64", "seconds")


class Run(NamedTuple):
    """Fields of a template, one after the other, that are read together or each by itself."""

    layout: Struct | None
    """None: each by itself."""
    others: tuple[tuple[int, Callable[[bytes], Any]], ...] = ()
    """Places of those whose values are not numbers yet, without those that are skipped."""
    single: tuple[TemplateField, ...] = ()
    """Those that are read by themselves."""


class TemplateField(NamedTuple):
    """One field of a template, as it is read."""

    name: str
    """Of a FlowRecord's field; empty: it is skipped."""
    size: int
    """Bytes; 65535: each value has its own."""
    read: Callable[[bytes], Any]


class Template(NamedTuple):
    """How records are read."""

    runs: tuple[Run, ...]
    order: Callable[[list[Any]], tuple[Any, ...]]
    """Of the values of a record, followed by 0 and an empty text, those of a FlowRecord's fields."""
    fields: int
    least: int
    """Bytes that each record has."""


class MessageHeader(NamedTuple):
    """Who sent a message, and when."""

    export_time: int
    sequence: int
    domain: int


class Decoder:
    """Of one transport session: it keeps the session's templates."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, int], Template] = {}
        self.unknown = 0
        """Data sets whose template has not come."""

    def read(self, message: bytes) -> tuple[MessageHeader, list[FlowRecord]]:
        """The records of one whole message. Raises Invalid; templates that came before stay."""
        if len(message) < HEADER.size:
            raise Invalid("IPFIX message", f"it ends within its header, after {len(message)} bytes")
        version, length, when, sequence, domain = HEADER.unpack_from(message)
        if version != VERSION:
            raise Invalid("IPFIX message", f"version {version} is not {VERSION}")
        if length != len(message):
            raise Invalid("IPFIX message", f"its length says {length}, it has {len(message)} bytes")
        records: list[FlowRecord] = []
        at = HEADER.size
        while at < length:
            number, size = _head(message, at)
            body = message[at + SET.size : at + size]
            if number == TEMPLATE_SET:
                self._learn(domain, body)
            elif number >= FIRST_ID:
                self._data(domain, number, body, records)
            elif number != OPTIONS_SET:
                raise Invalid("IPFIX message", f"no set has number {number}")
            at += size
        return MessageHeader(when, sequence, domain), records

    def _learn(self, domain: int, body: bytes) -> None:
        at = 0
        while len(body) - at >= SET.size:
            number, count = SET.unpack_from(body, at)
            at += SET.size
            if number == 0 and count == 0:
                return  # padding
            if number < FIRST_ID and number != TEMPLATE_SET:
                raise Invalid("IPFIX template", f"number {number} is below {FIRST_ID}")
            if count == 0:
                self._withdraw(domain, number)
                continue
            fields, at = _fields(body, at, count)
            key = (domain, number)
            if key not in self._templates and len(self._templates) >= MOST_TEMPLATES:
                raise Invalid("IPFIX template", f"a session has more than {MOST_TEMPLATES}")
            others = sum(one.fields for other, one in self._templates.items() if other != key)
            if others + len(fields) > MOST_SESSION_FIELDS:
                raise Invalid("IPFIX template", f"a session has more than {MOST_SESSION_FIELDS} fields")
            self._templates[key] = _template(fields)

    def _withdraw(self, domain: int, number: int) -> None:
        if number == TEMPLATE_SET:
            self._templates = {key: one for key, one in self._templates.items() if key[0] != domain}
        self._templates.pop((domain, number), None)

    def _data(self, domain: int, number: int, body: bytes, records: list[FlowRecord]) -> None:
        template = self._templates.get((domain, number))
        if template is None:
            self.unknown += 1
            return
        at, end = 0, len(body)
        while end - at >= template.least:
            if len(records) >= MOST_RECORDS:
                raise Invalid("IPFIX message", f"more than {MOST_RECORDS} records")
            at, values = _values(template.runs, body, at)
            records.append(FlowRecord(*template.order(values)))


def _head(message: bytes, at: int) -> tuple[int, int]:
    if len(message) - at < SET.size:
        raise Invalid("IPFIX message", "it ends within the header of a set")
    number, size = SET.unpack_from(message, at)
    if size < SET.size or at + size > len(message):
        raise Invalid("IPFIX message", f"a set of {size} bytes does not fit")
    return number, size


def _fields(body: bytes, at: int, count: int) -> tuple[list[TemplateField], int]:
    if count > MOST_FIELDS:
        raise Invalid("IPFIX template", f"{count} fields are more than {MOST_FIELDS}")
    fields = []
    for _ in range(count):
        if len(body) - at < 4:
            raise Invalid("IPFIX template", "it ends within a field")
        number, size = SET.unpack_from(body, at)
        at += 4
        enterprise = 0
        if number & 0x8000:
            if len(body) - at < 4:
                raise Invalid("IPFIX template", "it ends within an enterprise number")
            enterprise = int.from_bytes(body[at : at + 4])
            at += 4
        fields.append(_field(enterprise, number & 0x7FFF, size))
    if not any(one.size for one in fields):
        raise Invalid("IPFIX template", "its records have no bytes")
    return fields, at


def _field(enterprise: int, number: int, size: int) -> TemplateField:
    known = BY_NUMBER.get((enterprise, number))
    if known is None:
        return TemplateField("", size, _nothing)
    if known.kind in _NUMBER_KINDS:
        # shorter than it could be is allowed (RFC 7011, 6.2)
        fits = 0 < size <= known.size
        return TemplateField(known.field if fits else "", size, _number)
    if known.field == "http_vals":
        return TemplateField(known.field, size, _requests)
    fits = size == known.size or known.kind == "string"
    return TemplateField(known.field if fits else "", size, _READERS[known.kind])


def _template(fields: list[TemplateField]) -> Template:
    """At least FEW fields of stated sizes are read together."""
    runs: list[Run] = []
    single: list[TemplateField] = []
    for fixed, some in groupby(fields, lambda field: field.size != VARIABLE):
        found = [*some]
        if not fixed or len(found) < FEW:
            single += found
            continue
        if single:
            runs.append(Run(None, single=tuple(single)))
            single = []
        runs.append(_run(found))
    if single:
        runs.append(Run(None, single=tuple(single)))
    least = sum(1 if one.size == VARIABLE else one.size for one in fields)
    return Template(tuple(runs), _order([one.name for one in fields if one.name]), len(fields), least)


def _order(names: list[str]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Of a field that a template has twice the last value counts."""
    places = {name: at for at, name in enumerate(names)}
    absent = {0: len(names), "": len(names) + 1}
    every = [(one.name, one.default) for one in structs.fields(FlowRecord)]
    most = max([2, *(at for at, (name, _) in enumerate(every, 1) if name in places)])
    return itemgetter(*(places.get(name, absent[default]) for name, default in every[:most]))


def _run(fields: list[TemplateField]) -> Run:
    words: list[str] = []
    others: list[tuple[int, Callable[[bytes], Any]]] = []
    count = 0
    for one in fields:
        is_number = one.read is _number and one.size in _NUMBERS
        words.append(
            _NUMBERS[one.size] if one.name and is_number else f"{one.size}{'s' if one.name else 'x'}"
        )
        if one.name and not is_number:
            others.append((count, one.read))
        count += bool(one.name)
    return Run(Struct(f"!{''.join(words)}"), tuple(others))


def _values(runs: tuple[Run, ...], body: bytes, at: int) -> tuple[int, list[Any]]:
    """Where the record ends, and its values, with those of fields that it lacks at the end."""
    values: list[Any] = []
    for layout, others, single in runs:
        if layout is None:
            at = _single(single, body, at, values)
            continue
        if at + layout.size > len(body):
            raise Invalid("IPFIX record", f"values of {layout.size} bytes do not fit")
        begin = len(values)
        values += layout.unpack_from(body, at)
        for place, read in others:
            values[begin + place] = read(values[begin + place])
        at += layout.size
    values += (0, "")
    return at, values


def _single(fields: tuple[TemplateField, ...], body: bytes, at: int, values: list[Any]) -> int:
    """Read each by itself; returns where they end."""
    end = len(body)
    for name, size, read in fields:
        if size == VARIABLE:
            if at >= end:
                raise Invalid("IPFIX record", "it ends before the length of a value")
            size = body[at]
            at += 1
            if size == 255:
                size = int.from_bytes(body[at : at + 2])
                at += 2
        if at + size > end:
            raise Invalid("IPFIX record", f"a value of {size} bytes does not fit")
        if name:
            values.append(read(body[at : at + size]) if size else "")
        at += size
    return at


def _nothing(_: bytes) -> None:
    return None


def _text(octets: bytes) -> str:
    return _shared(octets) if len(octets) <= LONGEST_SHARED else _decoded(octets)


def _decoded(octets: bytes) -> str:
    return octets[:LONGEST_TEXT].decode(errors="replace").rstrip("\0")


_shared: Final = lru_cache(SHARED)(_decoded)


def _requests(octets: bytes) -> str:
    """Longer ones are left out: a part of them is no JSON."""
    return octets.decode(errors="replace") if len(octets) <= LONGEST_REQUESTS else ""


@lru_cache(SHARED)
def _ipv4(octets: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET, octets) if any(octets) else ""


@lru_cache(SHARED)
def _ipv6(octets: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6, octets) if any(octets) else ""


@lru_cache(SHARED)
def _uuid(octets: bytes) -> str:
    text = octets.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return "-".join(parts) if any(octets) else ""


_READERS: Final[Mapping[str, Callable[[bytes], str]]] = {
    "string": _text, "ipv4": _ipv4, "ipv6": _ipv6, "uuid": _uuid,
}  # fmt: skip
