"""The session with the engine that reads HTTP requests: asked for by a FIFO, its events come by a socket."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Unavailable
from antrea.outside.request_engine.session import CONFIGURATION, EVENTS, MAX_LINE, WANTED, EngineSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTAINER = f"while :; do exec 3<{WANTED} && echo wanted; read -r _ <&3; echo over; done"
"""What the container's program does, without an engine."""


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 (what is awaited is another process's)
            await asyncio.sleep(0.02)


async def test_the_engine_is_wanted_as_long_as_the_session_lasts(tmp_path: Path) -> None:
    session = EngineSession(tmp_path, "text", lambda _: None)
    assert session.trouble == ""
    await session.begin()
    await session.begin()  # as after a replay
    assert (tmp_path / CONFIGURATION).read_text() == "text"
    assert "container does not run" in session.trouble
    container = await asyncio.create_subprocess_exec(
        "sh", "-c", CONTAINER, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert container.stdout is not None
        assert await asyncio.wait_for(container.stdout.readline(), 60) == b"wanted\n"
        await until(lambda: "does not start" in session.trouble)
        await session.end()
        assert await asyncio.wait_for(container.stdout.readline(), 60) == b"over\n"
        assert session.trouble == ""
        assert not (tmp_path / EVENTS).exists()
        await session.begin()
        assert await asyncio.wait_for(container.stdout.readline(), 60) == b"wanted\n"
    finally:
        container.kill()
        await container.wait()
        await session.end()


async def test_events_come_line_by_line_and_an_endless_one_ends_its_connection_alone(tmp_path: Path) -> None:
    got: list[bytes] = []
    session = EngineSession(tmp_path, "", got.append)
    await session.begin()
    for text in (b"first\n", b"x" * (MAX_LINE * 2 + 1), b"second\nthird"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / EVENTS)
        writer.write(text)
        if len(text) < MAX_LINE:
            await until(lambda: not session.trouble)
            writer.write_eof()
        with contextlib.suppress(ConnectionResetError):  # what was not read is thrown away
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        await until(lambda: session.trouble)
    assert got == [b"first\n", b"second\n", b"third"]
    assert session.lost == 1
    await session.end()


async def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="L7 flow engine"):
        await EngineSession(tmp_path / "file" / "folder", "", print).begin()
