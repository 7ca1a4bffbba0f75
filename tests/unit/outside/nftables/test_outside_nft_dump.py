"""Answers of the kernel that another program's changes interrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.errors import Unavailable
from antrea.outside.nftables import dump

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_tables_that_change_while_they_are_read_are_read_again_and_then_not_taken_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sink that misses a table of ours would build on what is in it."""
    asked: list[str] = []

    def interrupted(_: bytes, what: str) -> Iterator[tuple[bytes, bool]]:
        asked.append(what)
        yield b"", False

    monkeypatch.setattr(dump, "_answers", interrupted)
    with pytest.raises(Unavailable, match="tables of inet: they change all the time"):
        dump.tables("inet")
    assert asked == ["tables of inet"] * dump.TRIES
