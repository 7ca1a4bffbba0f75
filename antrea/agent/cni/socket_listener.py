"""Unix socket for CNI plugins: one agent per Node owns it, and probes it as long as it runs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from typing import TYPE_CHECKING

from antrea.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_SECONDS = 10.0
"""Maximum delay of a response to a probe: all steps of the agent are shorter."""


@contextlib.contextmanager
def exclusive_unix_listener(path: Path) -> Iterator[socket.socket]:
    """Bind a socket to `path`, for root only; a lock beside it distinguishes a stale socket file from that of a running agent.

    Raises Unavailable if another agent of this Node serves it, Invalid if no process could.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            path.chmod(0o600)
        except BlockingIOError as error:
            raise Unavailable(f"CNI socket {path}: another antrea-agent of this Node serves it") from error
        except OSError as error:
            raise Invalid("cniSocket", f"cannot listen on {path}: {error.strerror or error}") from error
        stack.callback(path.unlink, missing_ok=True)
        yield listener


async def probe(path: Path, patience: float = TIMEOUT_SECONDS) -> None:
    """Connect as a plugin does, and send nothing. Raises Unavailable if the server does not close the connection in `patience` seconds."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write_eof()
                await reader.read()
            finally:
                writer.close()
    except TimeoutError:
        raise Unavailable(f"{path} has not answered for {patience:g} s") from None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}") from error
