"""Which pages of the embedded engine may be released: those of its constants and its code, and none that was written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from antrea.outside.clickhouse.embedded import LIBRARY, configure_allocator, read_only

if TYPE_CHECKING:
    import pytest

MAPS = f"""\
7f0000000000-7f0000009000 r--p 00000000 08:01 10 /x/chdb/{LIBRARY}
7f0000009000-7f0000012000 r-xp 00009000 08:01 10 /x/chdb/{LIBRARY}
7f0000012000-7f0000013000 r--p 00012000 08:01 10 /x/chdb/{LIBRARY}
7f0000013000-7f0000014000 rw-p 00013000 08:01 10 /x/chdb/{LIBRARY}
7f0000020000-7f0000021000 r-xp 00000000 08:01 11 /x/with a space/libc.so.6
7f0000030000-7f0000031000 rw-p 00000000 00:00 0 \n"""


def test_constants_and_code_are_released_and_what_was_relocated_is_not() -> None:
    assert [*read_only(MAPS, LIBRARY)] == [
        (0x7F0000000000, 0x7F0000009000),
        (0x7F0000009000, 0x7F0000012000),
    ]


def test_what_is_writable_before_the_code_is_not_released() -> None:
    maps = MAPS.replace("r--p 00000000", "rw-p 00000000")
    assert [*read_only(maps, LIBRARY)] == [(0x7F0000009000, 0x7F0000012000)]


def test_a_setting_of_the_allocator_that_is_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JE_MALLOC_CONF", "narenas:2")
    configure_allocator()
    assert os.environ["JE_MALLOC_CONF"] == "narenas:2"
    monkeypatch.delenv("JE_MALLOC_CONF")
    configure_allocator()
    assert "dirty_decay_ms:50," in os.environ["JE_MALLOC_CONF"]
