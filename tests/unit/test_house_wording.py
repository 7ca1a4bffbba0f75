"""Wordings that the house replaces, which build/wording.py finds in names, docstrings, messages and pages, do not come back."""

import ast
from collections.abc import Iterator
from typing import cast

import pytest
from build_program import load_build_program

pytestmark = pytest.mark.untraced

WORDING = load_build_program("wording")


def test_house_wordings_to_replace_do_not_come_back() -> None:
    assert WORDING.places() == [], "docs/glossary.md has the terms to use instead"


@pytest.mark.parametrize(
    ("source", "forms"),
    [
        ('def pods():\n    """Of this Node."""', ["docstring Of"]),
        ('def pods():\n    """Return the Pods of this Node."""', []),
        ("found = [one for one in rows]", ["binding found", "binding one"]),
        ("def pods(asked): ...", ["binding asked"]),
        ("async def _look(self): ...", ["function look"]),
        ("def look_up(self): ...", []),
        ('raise Invalid("name", f"{name} is no name")', ["phrase is no"]),
        ('error = "the Pod is no longer there"', []),
        ('tasks.create_task(run(), name=f"what {name} says")', ["task name"]),
        ('tasks.create_task(run(), name="liveness probe")', []),
        ('REASON = "ObjectNotUnderstood"', ["reason"]),
        ('Condition("Ready", "True", reason="no port")', ["reason"]),
        ('Condition("Ready", "True", reason="NoPort")', []),
        ('Sample(1, {"known": value})', ["metric label"]),
        ('Sample(1, {"result": value})', []),
        ('"""The caller is antrea/no/such_module.py."""', ["missing module"]),
        ('"""The caller is antrea/errors.py."""', []),
    ],
)
def test_house_finds_a_wording_to_replace(source: str, forms: list[str]) -> None:
    assert sorted(forms_of(source)) == sorted(forms)


def forms_of(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        yield from cast("Iterator[str]", WORDING._forms(node))


def test_house_finds_long_sentences_in_pages_and_none_in_code(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(WORDING, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    long = " ".join(["word"] * (WORDING.MAX_WORDS + 1))
    page.write_text(f"# What holds\n\nShort. {long}.\n\n```\n{long}\n```\n\n| a |\n|---|\n| it goes on |\n")
    forms = [place.form for place in WORDING._of_page(page)]
    assert forms == ["heading", f"sentence of more than {WORDING.MAX_WORDS} words", "phrase goes on"]
