"""A full disk under the journal of ids: the next number waits for room, the given ones stay, nothing is half-written."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.outside.disk.id_journal import FileJournal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB."""
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "mounts need root"
        pytest.skip("mounts need root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", tmp_path], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)) == 4096:
            if not os.statvfs(disk).f_bavail:
                break
    return filler


def test_a_full_disk_under_the_journal_refuses_new_numbers_and_loses_none(disk: Path) -> None:
    journal = FileJournal(disk / "ids")
    facts = Facts(journal)
    given = {"egress-0": facts.id("mark", "egress-0")}
    filler = fill(disk)

    def give() -> None:
        for number in range(1, 10_000):
            given[f"egress-{number}"] = facts.id("mark", f"egress-{number}")

    sentence = rf"cannot write the journal of ids {disk}/ids: No space left on device"
    with pytest.raises(Unavailable, match=sentence):
        give()
    journal.close()

    full = FileJournal(disk / "ids")
    facts = Facts(full)
    assert {key: facts.id("mark", key) for key in given} == given
    with pytest.raises(Unavailable, match=sentence):
        give()
    filler.unlink()
    given["late"] = facts.id("mark", "late")
    assert given["late"] == len(given)
    full.close()

    journal = FileJournal(disk / "ids")
    assert Facts(journal).ids.standing() == {("mark", key): number for key, number in given.items()}
    journal.close()
