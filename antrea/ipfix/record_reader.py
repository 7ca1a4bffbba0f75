"""How the records of a template are read: counters together, and the parts between them once for all records that have the same.

From record to record of a connection its counters change; names, policies and their actions stay as they are.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from antrea.apis.flow import MAX_REQUEST_BYTES, MAX_TEXT, FlowRecord
from antrea.errors import Invalid
from antrea.ipfix.element import BY_NUMBER, VARIABLE
from antrea.ipfix.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SHARED: Final = 32_768
"""Texts and addresses of which records that have the same share one."""
MAX_SHARED: Final = 96
"""Bytes of a text that is shared: what anybody sends fills no memory."""
SHARED_PARTS: Final = 4096
"""Parts of records whose values are kept."""
MAX_PART: Final = 512
"""Bytes of such a part, for the same reason."""
SHARED_PLANS: Final = 64
"""Parts of templates; sessions that have the same share their records' parts."""
FEW: Final = 4
"""Fields of stated sizes that are read together."""
_COUNTER: Final = 8
"""Bytes of a number that differs from record to record."""
_NUMBERS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_number: Final = int.from_bytes
_NUMBER_KINDS: Final = ("u8", "u16", "u32", "u64", "seconds")


class TemplateField(NamedTuple):
    """One field of a template, as it is read."""

    name: str
    """Name of a FlowRecord's field; empty: it is skipped."""
    size: int
    """Bytes; 65535: each value has its own."""
    read: Callable[[bytes], Any]


class Counters:
    """Fields of stated sizes, one after the other, that are read at once."""

    def __init__(self, fields: Sequence[TemplateField]) -> None:
        formats: list[str] = []
        others: list[tuple[int, Callable[[bytes], Any]]] = []
        count = 0
        for field in fields:
            is_number = field.read is _number and field.size in _NUMBERS
            formats.append(
                _NUMBERS[field.size]
                if field.name and is_number
                else f"{field.size}{'s' if field.name else 'x'}"
            )
            if field.name and not is_number:
                others.append((count, field.read))
            count += bool(field.name)
        self._layout, self._others = Struct(f"!{''.join(formats)}"), tuple(others)

    def read(self, body: bytes, at: int, values: list[Any]) -> int:
        """Add their values; returns where they end. Raises Invalid."""
        end = at + self._layout.size
        if end > len(body):
            raise Invalid("IPFIX record", f"values of {self._layout.size} bytes do not fit")
        begin = len(values)
        values += self._layout.unpack_from(body, at)
        for place, read in self._others:
            values[begin + place] = read(values[begin + place])
        return end


class Part:
    """Fields, one after the other, of which a record has the same values as the one before it, or as one of another connection."""

    def __init__(self, fields: tuple[TemplateField, ...]) -> None:
        self._fields = fields
        named = [field for field in fields if field.name]
        self._requests = [at for at, field in enumerate(named) if field.read is _requests]
        """Places of those values; no two records have the same."""
        skips, fixed = [], 0
        for each in fields:
            if each.size == VARIABLE:
                skips.append(fixed)
                fixed = 0
            else:
                fixed += each.size
        self._skips, self._rest = tuple(skips), fixed
        """Bytes of stated sizes before each value that has its own, and after the last of them."""

    def read(self, body: bytes, at: int, values: list[Any]) -> int:
        """Add their values; returns where they end. Raises Invalid."""
        begin = at
        try:
            for skip in self._skips:
                at += skip
                size = body[at]
                at += 1 + size if size != 255 else 3 + _number(body[at + 1 : at + 3])
        except IndexError:
            raise Invalid("IPFIX record", "it ends before the length of a value") from None
        at += self._rest
        if at > len(body):
            raise Invalid("IPFIX record", f"a part of {at - begin} bytes does not fit")
        data = body[begin:at]
        cached = _PARTS.get((self, data))
        if cached is None:
            cached = tuple(self._values(data))
            if at - begin <= MAX_PART and not any(cached[place] for place in self._requests):
                _PARTS.keep((self, data), cached)
        values += cached
        return at

    def _values(self, data: bytes) -> Iterator[Any]:
        """Yield the values of bytes whose sizes are known to fit."""
        at = 0
        for name, stated, read in self._fields:
            size = stated
            if size == VARIABLE:
                size = data[at]
                at += 1
                if size == 255:
                    size = _number(data[at : at + 2])
                    at += 2
            if name:
                yield read(data[at : at + size]) if size else ""
            at += size


_PARTS: Final[Recent[tuple[Part, bytes], tuple[Any, ...]]] = Recent(SHARED_PARTS)
_part: Final = lru_cache(SHARED_PLANS)(Part)


class Template:
    """How the records of a template are read."""

    def __init__(self, fields: Sequence[TemplateField]) -> None:
        self.fields = len(fields)
        self.least = sum(1 if field.size == VARIABLE else field.size for field in fields)
        """Bytes that each record has."""
        self._runs = [run.read for run in _runs(fields)]
        self._order = _order([field.name for field in fields if field.name])

    def read(self, body: bytes, at: int) -> tuple[int, FlowRecord]:
        """The record that begins there, and where it ends. Raises Invalid."""
        values: list[Any] = []
        for read in self._runs:
            at = read(body, at, values)
        values += (0, "", 1)
        return at, FlowRecord(*self._order(values))


def _runs(fields: Sequence[TemplateField]) -> Iterator[Counters | Part]:
    """At least FEW fields of stated sizes are read at once if one of them is a counter."""
    others: list[TemplateField] = []
    for fixed, some in groupby(fields, lambda field: field.size != VARIABLE):
        run = [*some]
        if not fixed or len(run) < FEW or all(field.size != _COUNTER for field in run):
            others += run
            continue
        if others:
            yield _part(tuple(others))
        others = []
        yield Counters(run)
    if others:
        yield _part(tuple(others))


def _order(names: list[str]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Return a function that orders the values of a record, followed by 0, an empty text and 1, as a FlowRecord's fields.

    Of a field that a template has twice the last value counts.
    """
    places = {name: at for at, name in enumerate(names)}
    absent = {0: len(names), "": len(names) + 1, 1: len(names) + 2}
    every = [(field.name, field.default) for field in structs.fields(FlowRecord)]
    most = max([2, *(at for at, (name, _) in enumerate(every, 1) if name in places)])
    return itemgetter(*(places.get(name, absent[default]) for name, default in every[:most]))


def field_of(enterprise: int, number: int, size: int) -> TemplateField:
    """How an element of this size is read."""
    known = BY_NUMBER.get((enterprise, number))
    if known is None:
        return TemplateField("", size, _read_none)
    if known.kind in _NUMBER_KINDS:
        # shorter than it could be is allowed (RFC 7011, 6.2)
        fits = 0 < size <= known.size
        return TemplateField(known.field if fits else "", size, _number)
    if known.field == "http_vals":
        return TemplateField(known.field, size, _requests)
    fits = size == known.size or known.kind == "string"
    return TemplateField(known.field if fits else "", size, _READERS[known.kind])


def _read_none(_: bytes) -> None:
    return None


def _text(data: bytes) -> str:
    return _shared(data) if len(data) <= MAX_SHARED else _decoded(data)


def _decoded(data: bytes) -> str:
    return data[:MAX_TEXT].decode(errors="replace").rstrip("\0")


_shared: Final = lru_cache(SHARED)(_decoded)


def _requests(data: bytes) -> str:
    """Longer ones are left out: a part of them is not JSON."""
    return data.decode(errors="replace") if len(data) <= MAX_REQUEST_BYTES else ""


@lru_cache(SHARED)
def _ipv4(data: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET, data) if any(data) else ""


@lru_cache(SHARED)
def _ipv6(data: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6, data) if any(data) else ""


@lru_cache(SHARED)
def _uuid(data: bytes) -> str:
    text = data.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return "-".join(parts) if any(data) else ""


_READERS: Final[Mapping[str, Callable[[bytes], str]]] = {
    "string": _text, "ipv4": _ipv4, "ipv6": _ipv6, "uuid": _uuid,
}  # fmt: skip
