"""YAML as upstream's library (go.yaml.in/yaml/v3 v3.0.4) wrote the same texts."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from antrea.antctl.yaml_text import text_of

PLAIN = ["nan", "1.2.3", "10.0.0.1", "a  b", "x,y", "v1.2", "AgentHealthy", "-x", "a:b", "a#b"]
DOUBLE = [
    "True",
    "2026-11-21T01:06:16Z",
    "2026-11-21",
    "",
    "null",
    "~",
    "1",
    "1:20",
    "y",
    "n",
    "yes",
    "Off",
    "0x1f",
]
DOUBLE += ["1e3", "7e15", "1_000", ".nan", "0o17", "-.5"]
SINGLE = ["* a", "a: b", "- x", "@x", "a #b", " lead", "[x]", "{}", "!x", "%a", "? a", "a:", "#x"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abyn01", max_size=3), inner),
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        *((text, text) for text in PLAIN),
        *((text, f'"{text}"') for text in DOUBLE),
        *((text, f"'{text}'") for text in SINGLE),
        ("a\nb\n", "|\n  a\n  b"),
        ("a\nb", "|-\n  a\n  b"),
        ("x\x07", '"x\\a"'),
    ],
)
def test_yaml_text_is_quoted_as_go_quotes_it(text: str, written: str) -> None:
    assert text_of({"k": text}) == f"k: {written}\n"


def test_yaml_text_sorts_keys_and_does_not_indent_lists() -> None:
    assert text_of([{"b": [1, {"c": True}], "a": None}]) == "- a: null\n  b:\n  - 1\n  - c: true\n"
    assert text_of(3) == "3\n"


@given(JSON)
def test_yaml_text_reads_back_as_what_was_written(answer: object) -> None:
    assert yaml.load(text_of(answer), yaml.CSafeLoader) == answer
