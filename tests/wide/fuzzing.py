"""What all fuzzers have in common: a seed for each execution, an end in time, a line that says how many there were."""

from __future__ import annotations

import os
import secrets
import time
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = float(os.environ.get("FUZZ_SECONDS", "20"))
"""For each fuzzer."""
SEED = os.environ.get("FUZZ_SEED", "")
"""Of the first execution."""
STRINGS = (
    "", "a", "web", "node-1", "kube-system", "0", "-1", "1:1", "../../x", "a=b", "a,b", "{", "\n", "\0", "\ud7ff", "é" * 200,
    "10.0.0.1", "010.0.0.0/8", "10.0.0.0/33", "0.0.0.0/0", "::/0", "fe80::1%eth0", "::ffff:10.0.0.1", "fd00::/64",
    "TCP", "UDP", "SCTP", "tcp", "ICMP", "Allow", "Drop", "Reject", "Pass", "In", "Out", "In NotIn", "Exists", "NotIn",
    "default", "x" * 300, "%s", "$(id)", "]]>", "true", "null", "1e309", "9" * 40,
)  # fmt: skip
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    80,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
)


class Fuzz:
    """Yields the source of chance of one execution after the other, until the time is over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.first = int(SEED) if SEED else secrets.randbits(40)
        self.count = 0
        self._began = time.monotonic()

    def __iter__(self) -> Iterator[Random]:
        self._began = time.monotonic()
        while time.monotonic() - self._began < SECONDS or self.count == 0:
            self.count += 1
            yield Random(self.seed)

    @property
    def seed(self) -> int:
        """Of the execution that is under way."""
        return self.first + self.count - 1

    @property
    def report(self) -> str:
        """One line."""
        took = time.monotonic() - self._began
        last = f"; FUZZ_SEED={self.seed} begins with the last one"
        return f"fuzz: {self.name}: {self.count} executions in {took:.1f} s, seeds from {self.first}{last}"


def spoilt(rnd: Random, text: bytes, most: int = 6) -> bytes:
    """With some bytes of it other ones, cut off, put in, or said twice."""
    found = bytearray(text)
    for _ in range(rnd.randrange(1, most)):
        at = rnd.randrange(len(found) + 1)
        way = rnd.randrange(6)
        if way == 0:
            del found[at:]
        elif way == 1:
            found[at:at] = rnd.randbytes(rnd.randrange(1, 9))
        elif way == 2:
            found[at:at] = found[at : at + rnd.randrange(64)]
        elif at < len(found):
            found[at] = rnd.choice((0, 1, 10, 0x22, 0x7F, 0x80, 0xC1, 0xFF, rnd.randrange(256)))
    return bytes(found)


def text(rnd: Random) -> str:
    """A text that somebody may write."""
    return (
        rnd.choice(STRINGS)
        if rnd.random() < 0.8
        else "".join(map(chr, rnd.choices(range(1, 0xD7FF), k=rnd.randrange(9))))
    )


def anything(rnd: Random, depth: int = 0) -> Any:
    """JSON of any shape."""
    way = rnd.randrange(7 if depth < 4 else 5)
    if way == 5:
        return [anything(rnd, depth + 1) for _ in range(rnd.randrange(4))]
    if way == 6:
        return {text(rnd): anything(rnd, depth + 1) for _ in range(rnd.randrange(4))}
    return (None, rnd.random() < 0.5, rnd.choice(NUMBERS), text(rnd), rnd.random() * 1e9)[way]


def deep(rnd: Random) -> str:
    """JSON with as many collections inside each other as decoders take, or more."""
    depth = rnd.choice((1, 50, 900, 1000, 3000))
    head, tail = rnd.choice((("[", "]"), ('{"x":', "}")))
    return head * depth + rnd.choice(("0", '"\\ud800"', "[]")) + tail * rnd.choice((depth, depth, 0))


def hostile(rnd: Random, found: dict[str, Any]) -> bytes:
    """An object as JSON, some with an unknown field in depth, or with lone surrogates and bytes that are no UTF-8."""
    text = msgspec.json.encode(found)
    way = rnd.randrange(12)
    if way == 0:
        return b'{"unknown":' + deep(rnd).encode() + b"," + text[1:]
    if way == 1:
        return text.replace(b'"a"', rnd.choice((b'"\\ud800"', b'"\xff"', b'"\\udc00\\ud800"')), 1)
    return text


def value_of(rnd: Random, kind: Any, odd: float = 0.02, depth: int = 0) -> Any:
    """JSON that a type takes, by its annotations alone; `odd` of all parts is of any shape."""
    return _Shape(rnd, odd).of(msgspec.inspect.type_info(kind), depth)


class _Shape:
    def __init__(self, rnd: Random, odd: float) -> None:
        self._rnd, self._odd = rnd, odd

    def of(self, info: Any, depth: int) -> Any:
        rnd = self._rnd
        if rnd.random() < self._odd:
            return anything(rnd)
        name = type(info).__name__
        make = getattr(self, f"_{name}", None)
        return make(info, depth) if make else anything(rnd)

    def _StructType(self, info: Any, depth: int) -> Any:  # noqa: N802 (named after msgspec's types)
        rnd = self._rnd
        wanted = [one for one in info.fields if one.required or rnd.random() < (0.6 if depth < 6 else 0.1)]
        if info.array_like:
            return [self.of(one.type, depth + 1) for one in info.fields]
        return {one.encode_name: self.of(one.type, depth + 1) for one in wanted}

    def _UnionType(self, info: Any, depth: int) -> Any:  # noqa: N802
        return self.of(self._rnd.choice(info.types), depth)

    def _ListType(self, info: Any, depth: int) -> Any:  # noqa: N802
        return [self.of(info.item_type, depth + 1) for _ in range(self._rnd.choice((0, 1, 1, 2, 3)))]

    _VarTupleType = _SetType = _FrozenSetType = _ListType

    def _TupleType(self, info: Any, depth: int) -> Any:  # noqa: N802
        return [self.of(one, depth + 1) for one in info.item_types]

    def _DictType(self, info: Any, depth: int) -> Any:  # noqa: N802
        return {text(self._rnd): self.of(info.value_type, depth + 1) for _ in range(self._rnd.randrange(3))}

    def _StrType(self, _: Any, __: int) -> Any:  # noqa: N802
        return text(self._rnd)

    def _BytesType(self, _: Any, __: int) -> Any:  # noqa: N802
        return self._rnd.choice(
            (
                "",
                "AAAA",
                "CgAAAQ==",
                "CgAAAA==",
                "AAAAAAAAAAAAAP//CgAAAQ==",
                "/QAAAAAAAAAAAAAAAAAAAQ==",
                "!",
                "A",
            )
        )

    def _IntType(self, _: Any, __: int) -> Any:  # noqa: N802
        return self._rnd.choice(NUMBERS)

    def _FloatType(self, _: Any, __: int) -> Any:  # noqa: N802
        return self._rnd.choice((0.0, 1.5, -1.0, 1e308, 5, 10_000))

    def _BoolType(self, _: Any, __: int) -> Any:  # noqa: N802
        return self._rnd.random() < 0.5

    def _LiteralType(self, info: Any, _: int) -> Any:  # noqa: N802
        return self._rnd.choice(info.values)

    def _NoneType(self, _: Any, __: int) -> Any:  # noqa: N802
        return None
