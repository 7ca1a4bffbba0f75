"""How a record is written: counters together, and the parts between them once for all records that have the same."""

from __future__ import annotations

import socket
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from struct import Struct, pack
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Final

from antrea.ipfix.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from antrea.apis.flow import FlowRecord
    from antrea.ipfix.element import Element

    Write = Callable[[FlowRecord], bytes]

_CODES: Final = {
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "seconds": "I",
    "ipv4": "4s",
    "ipv6": "16s",
    "uuid": "16s",
}
_LIMITS: Final = {"u8": 0xFF, "u16": 0xFFFF, "u32": 0xFFFFFFFF, "seconds": 0xFFFFFFFF, "u64": (1 << 64) - 1}
_COUNTERS: Final = ("u64", "seconds")
"""Kinds whose values differ from record to record of a connection."""
_REQUESTS: Final = "httpVals"
MAX_BYTES: Final = 0xFFFF - 4096
"""Bytes of a text, so that a record fits into a message."""
SHARED: Final = 8192
"""Texts and addresses whose bytes are kept for the next record."""
MAX_SHARED: Final = 96
"""Characters of such a text."""
SHARED_PARTS: Final = 4096
"""Parts of records whose bytes are kept, for each session and family."""
MAX_PART: Final = 512
"""Bytes of such a part."""


def encoder(elements: Sequence[Element]) -> Write:
    """Make the function that writes a record."""
    steps = [*_steps(elements)]
    return lambda record: b"".join([step(record) for step in steps])


def _steps(elements: Sequence[Element]) -> Iterator[Write]:
    """Neighbours of fixed length are written at once if one of them is a counter."""
    others: list[Element] = []
    for is_text, some in groupby(elements, lambda element: element.kind == "string"):
        run = [*some]
        if is_text or all(element.kind not in _COUNTERS for element in run):
            others += run
            continue
        if others:
            yield _part(others)
        others = []
        yield _counters(run)
    if others:
        yield _part(others)


def _part(run: Sequence[Element]) -> Write:
    """Written once for all records that have the same, but with requests, as no two have the same."""
    values_of = _values(run)
    writers = [_TEXTS.get(element.kind) or _number(element.kind) for element in run]
    requests = [at for at, element in enumerate(run) if element.name == _REQUESTS]
    kept: Recent[tuple[Any, ...], bytes] = Recent(SHARED_PARTS)

    def write(record: FlowRecord) -> bytes:
        values = values_of(record)
        data = kept.get(values)
        if data is None:
            data = b"".join([put(value) for put, value in zip(writers, values, strict=True)])
            if len(data) <= MAX_PART and not any(values[place] for place in requests):
                kept.keep(values, data)
        return data

    return write


def _values(run: Sequence[Element]) -> Callable[[FlowRecord], tuple[Any, ...]]:
    of = attrgetter(*(element.field for element in run))
    return of if len(run) > 1 else lambda record: (of(record),)


def _number(kind: str) -> Callable[[int], bytes]:
    form, limit = Struct(f"!{_CODES[kind]}"), _LIMITS[kind]
    return lambda value: form.pack(min(max(value, 0), limit))


def _counters(run: Sequence[Element]) -> Write:
    form = Struct("!" + "".join(_CODES[element.kind] for element in run)).pack
    values_of = _values(run)
    addresses = [(at, _TEXTS[element.kind]) for at, element in enumerate(run) if element.kind in _TEXTS]
    limits = [(at, _LIMITS[element.kind]) for at, element in enumerate(run) if element.kind in _LIMITS]

    def write(record: FlowRecord) -> bytes:
        values = [*values_of(record)]
        for at, data in addresses:
            values[at] = data(values[at])
        try:
            return form(*values)
        except struct_error:
            for at, limit in limits:
                values[at] = min(max(values[at], 0), limit)
            return form(*values)

    return write


def _text(value: str) -> bytes:
    return _shared(value) if len(value) <= MAX_SHARED else _sized(value)


def _sized(value: str) -> bytes:
    """The text with its size before it."""
    data = value.encode(errors="replace")[:MAX_BYTES]
    size = len(data)
    return (bytes((size,)) if size < 255 else b"\xff" + pack("!H", size)) + data


_shared: Final = lru_cache(SHARED)(_sized)


@lru_cache(SHARED)
def _ipv4(text: str) -> bytes:
    """0 for none, and for one of the other family, as a sender's record may have."""
    return socket.inet_pton(socket.AF_INET, text) if text and ":" not in text else bytes(4)


@lru_cache(SHARED)
def _ipv6(text: str) -> bytes:
    """Return the bytes of an IPv6 address, as `_ipv4` does of one of IPv4."""
    return socket.inet_pton(socket.AF_INET6, text) if ":" in text else bytes(16)


@lru_cache(SHARED)
def _uuid(text: str) -> bytes:
    """Return the bytes of a UID; none of a text that is not a UID, such as a static Pod's."""
    try:
        data = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return bytes(16)
    return data if len(data) == 16 else bytes(16)


_TEXTS: Final[Mapping[str, Callable[[str], bytes]]] = {
    "string": _text, "ipv4": _ipv4, "ipv6": _ipv6, "uuid": _uuid,
}  # fmt: skip
