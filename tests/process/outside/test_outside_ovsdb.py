"""The connection to a database that is not there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.outside.ovsdb.client import Ovsdb

if TYPE_CHECKING:
    from pathlib import Path


async def test_who_no_longer_waits_for_the_database_leaves_nobody_behind_who_does(tmp_path: Path) -> None:
    """An agent that is rebuilt while OVSDB is away would follow it once more each time."""
    before = asyncio.all_tasks()
    connecting = asyncio.create_task(Ovsdb.connect(tmp_path / "db.sock"))
    while len(asyncio.all_tasks() - before) < 2:  # noqa: ASYNC110 (no event)
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.wait({connecting})
    assert connecting.cancelled()
    assert asyncio.all_tasks() == before
