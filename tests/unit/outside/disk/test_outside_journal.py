"""Numbers outlive the process in a file that a kill or a full disk cannot spoil."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.engine import Facts, Record
from antrea.errors import Unavailable
from antrea.outside.disk.id_journal import FileJournal
from antrea.outside.disk.state_file import line_of

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


RECORDS = [Record("mark", "web", 1), Record("mark", "db", 2), Record("mark", "cache", 3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal with RECORDS."""
    journal = FileJournal(tmp_path / "ids")
    for record in RECORDS:
        journal.append(record)
    journal.close()
    return tmp_path / "ids"


def test_the_journal_leaves_out_a_line_that_is_none_and_keeps_the_others(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _, third = path.read_bytes().splitlines(keepends=True)
    spoilt = first + b"nonsense\n" + third
    path.write_bytes(spoilt)
    journal = FileJournal(path)
    assert journal.read() == [RECORDS[0], RECORDS[2]]
    assert not journal.complete
    aside = path.with_name("ids.damaged")
    assert [(r.message, vars(r)["fields"]) for r in caplog.records] == [
        (
            "The ID journal is damaged; new IDs start above those in the switch",
            {"path": path, "lines": 1, "first": 2, "aside": aside},
        )
    ]
    assert (aside.read_bytes(), aside.stat().st_mode & 0o777) == (spoilt, 0o600)
    # the next start finds it whole again
    Facts(journal)
    assert FileJournal(path).complete


def test_no_octet_of_the_journal_can_end_a_start_or_give_a_number_another_owner(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        for octet in {0, 10, 0x80, 0xFF, whole[at] ^ 1} - {whole[at]}:
            path.write_bytes(whole[:at] + bytes((octet,)) + whole[at + 1 :])
            journal = FileJournal(path)
            assert set(journal.read()) < set(RECORDS)
            assert not journal.complete
            journal.close()


@pytest.mark.parametrize("data", [b"[" * 100_000 + b"\n", b"\0" * 4096, b'["mark","web",-1]\n'])
def test_a_journal_of_nonsense_is_an_empty_one(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    journal = FileJournal(path)
    assert (journal.read(), journal.complete) == ([], False)


def test_a_journal_without_end_is_an_empty_one_and_its_beginning_is_kept_aside(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(65 << 20)
    assert FileJournal(path).read() == []
    assert path.stat().st_size == 0
    assert path.with_name("ids.damaged").stat().st_size == 1 << 20


def test_numbers_out_of_every_field_are_left_out(path: Path) -> None:
    path.write_bytes(line_of(Record("mark", "web", -1)) + line_of(Record("mark", "db", 1 << 32)))
    assert FileJournal(path).read() == []


def test_the_journal_of_a_first_start_is_not_complete_and_one_with_numbers_is(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "ids")
    assert not journal.complete
    journal.append(RECORDS[0])
    assert FileJournal(tmp_path / "ids").complete


def test_the_journal_is_replaced_whole_and_goes_on_in_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    journal = FileJournal(path)
    for number in range(1, 4):
        journal.append(Record("mark", "web", number))
    journal.rewrite([Record("mark", "web", 3)])
    journal.append(Record("mark", "db", 4))
    assert path.read_text() == '["mark","web",3] d15bd665\n["mark","db",4] 6122e9cb\n'
    assert [file.name for file in tmp_path.iterdir()] == ["ids"]


def test_a_journal_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "ids").mkdir()
    with pytest.raises(Unavailable, match=r"cannot open the journal of ids .*/ids: Is a directory"):
        FileJournal(tmp_path / "ids")
