"""Numbers outlive the process in a file that a kill or a full disk cannot spoil."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.engine import Facts, Record
from antrea.errors import Unavailable
from antrea.outside.journal import FileJournal

if TYPE_CHECKING:
    from pathlib import Path


def test_the_journal_gives_an_agent_that_starts_anew_the_numbers_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "antrea" / "ids"
    first = Facts(FileJournal(path))
    given = {key: first.id("mark", key) for key in ("web", "db", "cache")}
    again = Facts(FileJournal(path))
    assert {key: again.id("mark", key) for key in ("cache", "web", "db", "new")} == {**given, "new": 4}
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_journal_cuts_off_a_line_that_a_kill_left_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    journal = FileJournal(path)
    journal.append(Record("mark", "web", 1))
    journal.close()
    with path.open("ab") as file:
        file.write(b'["mark","db"')
    journal = FileJournal(path)
    journal.append(Record("mark", "db", 2))
    assert journal.read() == [Record("mark", "web", 1), Record("mark", "db", 2)]


def test_the_journal_leaves_out_a_line_that_is_none_and_keeps_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ids"
    path.write_text('["mark","web",1]\nnonsense\n["mark","db",2]\n')
    assert FileJournal(path).read() == [Record("mark", "web", 1), Record("mark", "db", 2)]
    assert [(r.message, vars(r)["fields"]["line"]) for r in caplog.records] == [
        ("Ignored a line of the journal of ids", 2)
    ]


def test_the_journal_is_replaced_whole_and_goes_on_in_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    journal = FileJournal(path)
    for number in range(1, 4):
        journal.append(Record("mark", "web", number))
    journal.rewrite([Record("mark", "web", 3)])
    journal.append(Record("mark", "db", 4))
    assert path.read_text() == '["mark","web",3]\n["mark","db",4]\n'
    assert [file.name for file in tmp_path.iterdir()] == ["ids"]


def test_a_journal_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "ids").mkdir()
    with pytest.raises(Unavailable, match=r"cannot open the journal of ids .*/ids: Is a directory"):
        FileJournal(tmp_path / "ids")
