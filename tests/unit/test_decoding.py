"""Whatever a decoder raises becomes Invalid, with a bounded reason on one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from antrea.decoding import (
    MAX_REASON,
    decode_base64,
    decode_json,
    decode_msgpack,
    decode_text,
    decode_tree,
    guarded,
    is_number,
)
from antrea.errors import Invalid
from antrea.flow_protobuf.schema import ExportRequest

if TYPE_CHECKING:
    from collections.abc import Callable


class Kind(msgspec.Struct):
    number: int = 0


@pytest.mark.parametrize(
    ("decode", "cause"),
    [
        (lambda: decode_json(b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}", Kind, "it"), RecursionError),
        (lambda: decode_json("[" * 3000, object, "it"), RecursionError),
        (lambda: decode_json('"\ud800"', str, "it"), UnicodeEncodeError),
        (lambda: decode_json(b'"\xff"', str, "it"), UnicodeDecodeError),
        (lambda: decode_json(b'{"number":"1"}', Kind, "it"), msgspec.ValidationError),
        (lambda: decode_json(b"{", Kind, "it"), msgspec.DecodeError),
        (lambda: decode_msgpack(b"\x91" * 3000, object, "it"), RecursionError),
        (lambda: decode_tree({"number": []}, Kind, "it"), msgspec.ValidationError),
        (lambda: decode_base64("%", "it"), ValueError),
        (lambda: decode_base64("\ud800", "it"), ValueError),
        (lambda: decode_text(b"\xff", "it"), UnicodeDecodeError),
        (lambda: guarded("it", json.loads, "[" * 100_000), RecursionError),
        (lambda: guarded("it", yaml.safe_load, "!!bool x"), KeyError),
        (lambda: guarded("it", yaml.safe_load, "!!int ''"), Exception),
        (lambda: guarded("it", yaml.safe_load, "["), yaml.YAMLError),
        (lambda: guarded("it", yaml.safe_load, "[" * 3000), RecursionError),
        (lambda: guarded("it", ExportRequest.FromString, b"\xff"), Exception),
    ],
)
@pytest.mark.untraced
def test_everything_that_a_decoder_raises_is_invalid(
    decode: Callable[[], Any], cause: type[Exception]
) -> None:
    with pytest.raises(Invalid) as caught:
        decode()
    assert caught.value.path == "it"
    assert isinstance(caught.value.__cause__, cause)


def test_a_reason_is_short_and_on_one_line() -> None:
    def decode(_: str) -> None:
        raise ValueError("a\nb\x1b[2J" + "x" * 1000)

    with pytest.raises(Invalid) as caught:
        guarded("it", decode, "")
    assert caught.value.why.startswith("a b\N{REPLACEMENT CHARACTER}[2Jx")
    assert len(caught.value.why) == MAX_REASON


def test_what_can_be_decoded_is_returned() -> None:
    assert decode_json(b'{"number":1}', Kind, "it") == Kind(1)
    assert decode_text(decode_base64("aGk=", "it"), "it") == "hi"


@pytest.mark.parametrize(
    ("text", "whether"),
    [
        ("0", True),
        ("10", True),
        ("11", False),
        ("-1", False),
        ("", False),
        ("\u0665", False),
        ("\u00b2", False),
    ],
)
def test_a_number_is_decimal_digits_of_ascii_up_to_a_maximum(text: str, whether: bool) -> None:
    assert is_number(text, 10) == whether


def test_more_digits_than_python_converts_are_no_number() -> None:
    assert not is_number("0" * 5000, 10)
