"""The socket that CNI plugins knock at: one agent per Node has it, and tries it itself as long as it runs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from typing import TYPE_CHECKING

from antrea.errors import Invalid, Unavailable
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = klog.logger(__name__)

KNOCK_SECONDS = 5.0
"""Between two tries."""
PATIENCE_SECONDS = 10.0
"""For which nobody may answer: all steps of the agent are shorter."""


@contextlib.contextmanager
def sole_listener(path: Path) -> Iterator[socket.socket]:
    """A socket bound to `path`, for root only; a lock beside it tells a stale socket file from a living agent's.

    Raises Unavailable if another agent of this Node serves it, Invalid if nobody could.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            door = stack.enter_context(socket.socket(socket.AF_UNIX))
            door.bind(str(path))
            path.chmod(0o600)
        except BlockingIOError as e:
            raise Unavailable(f"CNI socket {path}: another antrea-agent of this Node serves it") from e
        except OSError as e:
            raise Invalid("cniSocket", f"cannot listen on {path}: {e.strerror or e}") from e
        stack.callback(path.unlink, missing_ok=True)
        yield door


class Knock:
    """Comes as a plugin does, asks nothing, and is to be let out again."""

    def __init__(
        self, path: Path, *, period: float = KNOCK_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._path = path
        self._period = period
        self._patience = patience
        self.trouble = ""
        """Why no plugin would be heard; empty while all is well."""

    async def run(self) -> None:
        """Forever."""
        while True:
            await asyncio.sleep(self._period)
            trouble = await self._try()
            if trouble != self.trouble:
                log.error("The CNI socket was tried", err=trouble or "it answers again")
            self.trouble = trouble

    async def _try(self) -> str:
        try:
            async with asyncio.timeout(self._patience):
                reader, writer = await asyncio.open_unix_connection(str(self._path))
                try:
                    writer.write_eof()
                    await reader.read()
                finally:
                    writer.close()
        except TimeoutError:
            return f"{self._path} has answered nobody for {self._patience:g} s"
        except OSError as no:
            return f"{self._path}: {no.strerror or no}"
        return ""
