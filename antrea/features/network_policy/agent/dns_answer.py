"""Parser of DNS answers: which addresses a server gives to the name in the question.

A message is untrusted. Only the addresses of that name count, by its chain of aliases, and nothing is read beyond a number of
bytes: a general parser takes a quarter of a second for the longest message.
Source: RFC 1035 (messages), RFC 3596 (AAAA), RFC 2181 8 (time to live), RFC 7766 (length of a message over TCP)
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from antrea.errors import Invalid

MAX_ALIASES = 16
"""Maximum number of aliases in a chain; resolvers stop before."""
MAX_ADDRESSES = 256
"""Maximum number of addresses of one answer."""
MAX_BYTES = 8192
"""Maximum number of bytes read of one message: room for 256 addresses of IPv6."""
MAX_LABELS = 128
"""Maximum number of labels of one name, with pointers."""
MAX_NAME = 255
"""Maximum number of bytes of a name."""
_A, _CNAME, _AAAA, _IN = 1, 5, 28, 1
_NOERROR, _QUERY = 0, 0
_HEADER = struct.Struct("!HHHHHH")
_RECORD = struct.Struct("!HHIH")
_POINTER, _MAX_LABEL = 0xC0, 63
_PRINTED = frozenset(range(0x21, 0x7F)) - frozenset(b'"().;\\@$')
"""Characters of a label that need no escape (RFC 1035 5.1)."""

Name = tuple[bytes, ...]
"""Labels in lower case."""


class DnsAnswer(NamedTuple):
    """Addresses of a name."""

    name: str
    """Name in lower case, without the dot of the root."""
    addresses: tuple[tuple[str, int], ...]
    """Addresses with the seconds that each may be kept."""


class _Records(NamedTuple):
    """Relevant records of a message."""

    addresses: dict[Name, dict[str, int]]
    """Addresses of each name with their times to live."""
    aliases: dict[Name, tuple[Name, int]]


def dns_answer(message: bytes) -> DnsAnswer | None:
    """Return the answer of a message to the name in its question; None if that is not an address of a name.

    Truncated answers count as far as they go. Raises Invalid for anything else than an answer to one question.
    """
    message = message[:MAX_BYTES]
    _, flags, questions, answers, _, _ = _HEADER.unpack(_piece(message, 0, _HEADER.size))
    if not flags & 0x8000 or questions != 1 or flags >> 11 & 0xF != _QUERY:
        raise Invalid("DNS message", "it is not an answer to one question")
    name, at = _name(message, _HEADER.size)
    kind, of = struct.unpack("!HH", _piece(message, at, 4))
    if of != _IN or kind not in (_A, _AAAA) or flags & 0xF != _NOERROR:
        return None
    records = _records(message, at + 4, answers, kind)
    owner, seconds = _canonical(name, records.aliases)
    ttls = records.addresses.get(owner)
    if not ttls:
        return None
    shortest = min(ttls.values())
    seconds = shortest if seconds is None else min(seconds, shortest)
    addresses = tuple((address, seconds) for address, _ in zip(ttls, range(MAX_ADDRESSES), strict=False))
    return DnsAnswer(name_text(name), addresses)


def name_text(name: Name) -> str:
    """Return the name in lower case, without the dot of the root, other characters escaped."""
    return ".".join("".join(map(_character, label)) for label in name) or "."


def _character(code: int) -> str:
    if code in _PRINTED:
        return chr(code)
    return f"\\{chr(code)}" if 0x21 <= code < 0x7F else f"\\{code:03}"


def _records(message: bytes, at: int, count: int, kind: int) -> _Records:
    """Read the answer section as far as the message goes. Raises Invalid."""
    records, known = _Records({}, {}), dict[int, Name]()
    for _ in range(count):
        if at >= len(message):
            break
        try:
            owner, at = _name(message, at, known)
            type_, of, seconds, length = _RECORD.unpack(_piece(message, at, _RECORD.size))
            at += _RECORD.size
            data = _piece(message, at, length)
        except _Cut:
            break
        seconds = 0 if seconds >> 31 else seconds
        if of == _IN and type_ == _CNAME and owner not in records.aliases:
            records.aliases[owner] = _name(message, at, known)[0], seconds
        elif of == _IN and type_ == kind and length == (4 if kind == _A else 16):
            address, known_here = _address(data), records.addresses.setdefault(owner, {})
            known_here[address] = min(seconds, known_here.get(address, seconds))
        at += length
    return records


def _address(data: bytes) -> str:
    return str(IPv4Address(data) if len(data) == 4 else IPv6Address(data))


class _Cut(Invalid):
    """Error for a message that ends within what is read."""


def _piece(message: bytes, at: int, length: int) -> bytes:
    if at + length > len(message):
        raise _Cut("DNS message", f"it ends after {len(message)} bytes")
    return message[at : at + length]


def _name(message: bytes, at: int, known: dict[int, Name] | None = None) -> tuple[Name, int]:
    """Read the name that begins at an offset, and where what follows it begins; `known` has names by offset. Raises Invalid."""
    labels: list[bytes] = []
    start, end, size = at, -1, 0
    for _ in range(MAX_LABELS):
        length = _piece(message, at, 1)[0]
        if length >= _POINTER:
            to = int.from_bytes(_piece(message, at, 2)) & 0x3FFF
            end = at + 2 if end < 0 else end
            if to >= at:
                raise Invalid("DNS message", "a name continues at a later place of the message")
            if known is not None and not labels and to in known:
                return known[to], end
            start, at = (to, to) if not labels else (start, to)
        elif length > _MAX_LABEL:
            raise Invalid("DNS message", f"a label begins with {length:#04x}")
        elif not length:
            name = tuple(labels)
            if known is not None:
                known[start] = name
            return name, at + 1 if end < 0 else end
        else:
            labels.append(_piece(message, at + 1, length).lower())
            at, size = at + 1 + length, size + 1 + length
            if size >= MAX_NAME:
                break
    raise Invalid("DNS message", f"a name has more than {MAX_NAME} bytes")


def _canonical(name: Name, aliases: dict[Name, tuple[Name, int]]) -> tuple[Name, int | None]:
    """Return the name at the end of the chain of aliases, and the shortest time to live of its links. Raises Invalid."""
    seconds: int | None = None
    for _ in range(MAX_ALIASES):
        if name not in aliases:
            return name, seconds
        name, more = aliases[name]
        seconds = more if seconds is None else min(seconds, more)
    raise Invalid("DNS message", f"more than {MAX_ALIASES} aliases")
