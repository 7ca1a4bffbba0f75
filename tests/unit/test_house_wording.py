"""Wordings that the house replaces become fewer: build/wording.py counts them, tests/unit/wording.txt has the counts."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pytest
from build_program import load_build_program

pytestmark = pytest.mark.untraced

WORDING = load_build_program("wording")


@cache
def places() -> list[Any]:
    return list(WORDING.places())


def places_by_line() -> dict[tuple[str, str], list[str]]:
    """Return the places of every line of the table, and of lines that it lacks."""
    lines = defaultdict[tuple[str, str], list[str]](list)
    for place in places():
        lines[place.folder, place.form].append(place.at)
    return lines


def test_house_wordings_to_replace_only_become_fewer() -> None:
    counts = WORDING.read()
    lines = places_by_line()
    more = {line: at for line, at in lines.items() if len(at) > counts.get(line, 0)}
    assert more == {}, (
        "reword what is new (docs/glossary.md has the terms); after a move to another folder, or after merging, "
        "`make docs` writes the counts"
    )
    fewer = {line: count for line, count in counts.items() if len(lines[line]) < count - WORDING.SLACK}
    assert fewer == {}, "there are fewer now: `make docs` writes the counts"


GONE = (
    *(f"docstring {opening}" for opening in WORDING.OPENINGS),
    "heading",
    "metric label",
    "missing module",
    "phrase goes on",
    "phrase is no",
    "phrase last word",
    "phrase look-up",
    "phrase octet",
    "phrase realis-",
    "phrase records of connections",
    "phrase that stand",
    "reason",
    f"sentence of more than {WORDING.MAX_WORDS} words",
    "task name",
)


@pytest.mark.parametrize("form", GONE)
def test_house_wordings_that_are_gone_do_not_come_back(form: str) -> None:
    assert [place.at for place in places() if place.form == form] == []


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


def test_house_refuses_a_total_that_rises_and_allows_a_move() -> None:
    before = {("antrea/agent", "binding one"): 3, ("antrea/facts", "binding one"): 1}
    moved = {("antrea/features", "binding one"): 4}
    assert WORDING.risen(before, moved) == {}
    assert WORDING.risen(before, {**moved, ("docs", "binding one"): 1}) == {"binding one": (4, 5)}


def test_house_reads_the_table_that_it_writes(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    counts = {("antrea/agent", "binding one"): 3, ("docs", "phrase is no"): 12}
    monkeypatch.setattr(WORDING, "TABLE", tmp_path / "wording.txt")
    WORDING.TABLE.write_text(WORDING.text(counts))
    assert WORDING.read() == counts


def test_house_finds_long_sentences_in_pages_and_none_in_code(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(WORDING, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    long = " ".join(["word"] * (WORDING.MAX_WORDS + 1))
    page.write_text(f"# What holds\n\nShort. {long}.\n\n```\n{long}\n```\n\n| a |\n|---|\n| it goes on |\n")
    forms = [place.form for place in WORDING._of_page(page)]
    assert forms == ["heading", f"sentence of more than {WORDING.MAX_WORDS} words", "phrase goes on"]
