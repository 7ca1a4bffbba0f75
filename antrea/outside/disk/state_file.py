"""State that outlives the process, on a disk that may spoil it: what is damaged is left out, and kept aside for a person.

A file that is only read whole begins with its kind and a digest of the rest; one of records has a checksum in every line.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from antrea.decoding import guarded
from antrea.errors import Invalid
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

T = TypeVar("T")
log = klog.logger(__name__)

MAX_BYTES = 64 << 20
"""Bytes of a file; none of ours comes near."""
MAX_ASIDE = 1 << 20
"""Bytes that are kept of a damaged file, the first; the one kept before goes."""
DIGEST = 32
_CHECKSUM = 8


class Damaged(ValueError):
    """Not what was written."""


class Lines(NamedTuple):
    """A file of records as it was read."""

    values: list[Any]
    damaged: tuple[int, ...]
    """Numbers of the lines that are left out, from 1."""


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """All of a file. Raises OSError, and Damaged for one of more than `most` bytes."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise Damaged(f"it has more than {most} bytes")
    return data


def sealed(kind: bytes, parts: Sequence[bytes]) -> list[bytes]:
    """The parts of a file that `unsealed` takes: `kind` is a line, the same at each write."""
    digest = blake2b(digest_size=DIGEST)
    for part in parts:
        digest.update(part)
    return [kind, digest.digest(), *parts]


def unsealed(kind: bytes, data: bytes) -> memoryview:
    """Return the content of a sealed file. Raises Damaged."""
    body = memoryview(data)[len(kind) + DIGEST :]
    if not data.startswith(kind) or blake2b(body, digest_size=DIGEST).digest() != data[len(kind) :][:DIGEST]:
        raise Damaged("it is not what was written")
    return body


def line_of(value: Any) -> bytes:
    """One record: JSON, a space and the checksum of the JSON."""
    text = msgspec.json.encode(value)
    return b"%s %08x\n" % (text, zlib.crc32(text))


def lines_in(data: bytes, kind: type[T]) -> Lines:
    """The records of such lines; the last one counts as damaged where its line feed is missing."""
    *lines, rest = data.split(b"\n")
    values, damaged = [], []
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(lines, start=1):
        try:
            values.append(_value(line, decoder))
        except (Damaged, Invalid):
            damaged.append(number)
    if rest:
        damaged.append(len(lines) + 1)
    return Lines(values, tuple(damaged))


def _value(line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    text, checksum = line[: -_CHECKSUM - 1], line[-_CHECKSUM:]
    if line[-_CHECKSUM - 1 : -_CHECKSUM] != b" " or checksum != b"%08x" % zlib.crc32(text):
        raise Damaged("the checksum is another one")
    return guarded("record", decoder.decode, text)


def set_aside(path: Path) -> Path:
    """Keep the beginning of a damaged file beside it, as `<name>.damaged`; failing that is logged. The file itself stays."""
    aside = path.with_name(f"{path.name}.damaged")
    try:
        with path.open("rb") as file:
            exchange(aside, (file.read(MAX_ASIDE),))
    except OSError as error:
        log.warning("Failed to keep a copy of a damaged file", path=path, err=str(error))
    return aside
