"""YAML of others: what is read as upstream reads it, what is refused, and what nothing costs."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from antrea.config.yaml_reader import MAX_DEPTH, own_document, strangers_document

SECONDS = 3.0
"""Thousands of times what any of these documents should take."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:1", "1:1"),
        ("190:20:30", "190:20:30"),
        ("1:1.5", "1:1.5"),
        ("0x1f", 31),
        ("0b11", 3),
        ("010", 8),
        ("-5", -5),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("-1.5e+3", -1500.0),
        (".inf", float("inf")),
        ("0", 0),
        ("0.0.0.0", "0.0.0.0"),
        ("2026-01-01", "2026-01-01"),
        ("yes", True),
        ("~", None),
        ('"5"', "5"),
        ("!!str 5", "5"),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
    ],
)
def test_yaml_reader_scalars_are_what_they_are_in_go(text: str, value: Any) -> None:
    assert own_document(f"a: {text}") == strangers_document(f"a: {text}") == {"a": value}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!int 1:1:1",
        "a: !!float 1:2",
        "a: !!binary aGk=",
        "a: !!set {x}",
        "a: !!python/object:os.system x",
        "a: [",
    ],
)
def test_yaml_reader_refuses_what_is_no_plain_value(text: str) -> None:
    for read in (own_document, strangers_document):
        with pytest.raises(yaml.YAMLError):
            read(text)


def test_yaml_reader_takes_aliases_and_merges_from_their_owner_alone() -> None:
    for text, value in (
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x {k: 1}\nb: {<<: *x, l: 2}", {"a": {"k": 1}, "b": {"k": 1, "l": 2}}),
        ("{<<: {k: 1}, l: 2}", {"k": 1, "l": 2}),
    ):
        assert own_document(text) == value
        with pytest.raises(yaml.YAMLError, match="are not taken"):
            strangers_document(text)
    with pytest.raises(yaml.YAMLError, match="a key is there twice"):
        strangers_document("a: 1\na: 2")


def test_yaml_reader_strangers_nest_as_deep_as_objects_of_the_api() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert strangers_document(deep)
    with pytest.raises(yaml.YAMLError, match=f"more than {MAX_DEPTH} collections"):
        strangers_document(f"[{deep}]")


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 60_000,
        "{a: " * 15_000,
        "- " * 30_000,
        "? " * 30_000,
        "a: " + "1:" * 30_000 + "1",
        "a: !!int " + "1:" * 30_000 + "1",
        "a: !!float " + "1:" * 30_000 + "1",
        "a: &a {k: v}\n"
        + "".join(
            f"{chr(n)}: &{chr(n)} {{<<: [{','.join(['*' + chr(n - 1)] * 9)}]}}\n" for n in range(98, 110)
        ),
        "a: " + "9" * 60_000,
    ],
)
def test_yaml_reader_a_bomb_costs_nothing(bomb: str) -> None:
    begun = time.process_time()
    try:
        found = strangers_document(bomb)
    except (yaml.YAMLError, ValueError):
        found = None
    assert found is None or isinstance(found["a"], str)
    assert time.process_time() - begun < SECONDS
