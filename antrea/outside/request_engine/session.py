"""The engine by its folder, which its container shares: what it starts with, the FIFO by which it is asked for, its events.

`build/image/run_l7_flow_engine` starts the engine while a process has the FIFO open for writing, hence no longer than that
process lives, and sleeps in the kernel until then.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIGURATION, WANTED, EVENTS = "suricata.yaml", "wanted", "events.sock"
MAX_LINE: Final = 1 << 20
"""Bytes of an event: with a longer one the session ends, and the engine begins another one."""
SLICE: Final = 100
"""Events that are taken before others have their turn."""
PAUSE: Final = 1.0
"""Seconds between tries to find the container."""


class EngineSession:
    """Asks for the engine from `begin` to `end`, and passes each line that it writes to `take`."""

    def __init__(self, folder: Path, configuration: str, take: Callable[[bytes], None]) -> None:
        self._folder, self._configuration, self._take = folder, configuration, take
        self._server: asyncio.Server | None = None
        self._asking: asyncio.Task[None] | None = None
        self._fifo = -1
        self._sessions: set[asyncio.StreamWriter] = set()
        self.lost = 0
        """Lines that were too long."""

    @property
    def trouble(self) -> str:
        """Why there are no events though they are asked for; empty: the engine runs, or is not wanted."""
        if self._asking is None or self._sessions:
            return ""
        return (
            "its container does not run, see its status"
            if self._fifo < 0
            else "it does not start: see the log of its container"
        )

    async def begin(self) -> None:
        """Ask for it. Raises Unavailable if its folder cannot be written to."""
        if self._asking:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._folder / CONFIGURATION).write_text(self._configuration)
            if not (self._folder / WANTED).exists():
                os.mkfifo(self._folder / WANTED, 0o600)
            (self._folder / EVENTS).unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, self._folder / EVENTS, limit=MAX_LINE)
            (self._folder / EVENTS).chmod(0o600)
        except OSError as error:
            raise Unavailable(f"the L7 flow engine cannot be asked for connections: {error}") from error
        self._asking = asyncio.create_task(self._ask(), name="L7 flow engine")

    async def end(self) -> None:
        """The engine stops, and costs nothing any more."""
        if self._asking:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
            self._asking = None
        if self._fifo >= 0:
            os.close(self._fifo)
            self._fifo = -1
        if self._server:
            self._server.close()
            self._server = None
        for session in self._sessions:
            session.close()
        (self._folder / EVENTS).unlink(missing_ok=True)

    async def _ask(self) -> None:
        """Open the FIFO, which is possible once the container reads it; later starts of the container find it open."""
        while self._fifo < 0:
            try:
                self._fifo = os.open(self._folder / WANTED, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                await asyncio.sleep(PAUSE)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sessions.add(writer)
        taken = 0
        try:
            while line := await reader.readline():
                self._take(line)
                taken += 1
                if taken % SLICE == 0:
                    await asyncio.sleep(0)
        except ValueError:
            self.lost += 1  # the line is too long; the engine begins another session
        except OSError:
            pass
        finally:
            self._sessions.discard(writer)
            writer.close()
