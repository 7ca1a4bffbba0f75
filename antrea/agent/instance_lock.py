"""One agent per Node: a second instance exits with an error before it changes anything."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = "antrea-agent.lock"


@contextlib.contextmanager
def instance_lock(directory: Path) -> Iterator[None]:
    """Hold the Node's lock; the kernel releases it when the process ends, in any way.

    Raises Unavailable if another agent holds it or the directory cannot be written to.
    """
    path = directory / LOCK
    with contextlib.ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unavailable(f"lock {path}: another antrea-agent runs on this Node") from error
        except OSError as error:
            raise Unavailable(f"lock {path}: {error.strerror}") from error
        yield
