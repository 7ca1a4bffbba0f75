"""Decoders for text that others wrote: whatever a decoder raises becomes `Invalid`.

A decoder raises more than its own errors: RecursionError for deep nesting, UnicodeDecodeError and UnicodeEncodeError for what is no
UTF-8, LookupError for tags of YAML. An `except` that lists them is incomplete sooner or later, so nothing else in antrea/ calls a
decoder inside a `try` (tests/unit/test_house.py).
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

P = ParamSpec("P")
T = TypeVar("T")
MAX_DIGITS: Final = 20
"""Digits of a number of 64 bits."""
MAX_REASON: Final = 300
"""Characters of a decoder's message, which may quote what it cannot decode."""


def guarded(path: str, decoder: Callable[P, T], /, *values: P.args, **options: P.kwargs) -> T:
    """Call `decoder`; `path` names what is decoded. Raises Invalid, from the decoder's error, for everything that it raises."""
    try:
        return decoder(*values, **options)
    except Invalid:
        raise
    except Exception as error:
        raise Invalid(path, _reason(error)) from error


def decode_json(text: str | bytes | memoryview | msgspec.Raw, kind: type[T], path: str) -> T:
    """Decode JSON as `kind`. Raises Invalid."""
    import msgspec  # noqa: PLC0415 (start-up time of antctl)

    return guarded(path, msgspec.json.decode, text, type=kind)


def decode_msgpack(data: bytes | memoryview | msgspec.Raw, kind: type[T], path: str) -> T:
    """Decode MessagePack as `kind`. Raises Invalid."""
    import msgspec  # noqa: PLC0415 (start-up time of antctl)

    return guarded(path, msgspec.msgpack.decode, data, type=kind)


def decode_tree(tree: object, kind: type[T], path: str) -> T:
    """Convert dicts and lists to `kind`. Raises Invalid."""
    import msgspec  # noqa: PLC0415 (start-up time of antctl)

    return guarded(path, msgspec.convert, tree, kind)


def decode_base64(text: str | bytes, path: str) -> bytes:
    """Decode base64 without characters outside its alphabet. Raises Invalid."""
    return guarded(path, base64.b64decode, text, validate=True)


def decode_text(data: bytes, path: str, encoding: str = "utf-8") -> str:
    """Decode text. Raises Invalid."""
    return guarded(path, data.decode, encoding)


def is_number(text: str, most: int) -> bool:
    """Return whether text is a decimal number from 0 to `most`; Python converts no more than 4,300 digits."""
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS and int(text) <= most


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text[:MAX_REASON]
    )
