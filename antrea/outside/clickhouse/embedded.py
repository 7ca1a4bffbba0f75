"""ClickHouse's own engine in this process (package chdb-core), with its rows in one directory.

The engine belongs to one process, which holds a lock on the directory. One thread reads and one does all else, each with
a session of its own, so that a long query delays no insert; the engine releases the interpreter while it works. What an
INSERT has answered is there after kill -9. Its allocator gives free pages back, and code and constants that it needs seldom are not
kept mapped.

Source: https://jemalloc.net/jemalloc.3.html (opt.dirty_decay_ms), madvise(2), proc_pid_maps(5).
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import importlib
import importlib.util
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from antrea.apis.shown import one_line
from antrea.errors import Unavailable
from antrea.outside.clickhouse.store import parameter_text
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.outside.clickhouse.store import Value

log = klog.logger(__name__)

LIBRARY: Final = "_chdb.abi3.so"
"""555 MB, of which the start of the engine reads 170."""
MADV_DONTNEED: Final = 4
_MAPS: Final = Path("/proc/self/maps")


def configure_allocator() -> None:
    """Before the engine is loaded: pages that a query or a merge has freed go back after 50 ms, not after seconds.

    At once would make each block of rows take pages anew from the kernel, which doubles the time of a query.
    """
    os.environ.setdefault("JE_MALLOC_CONF", "dirty_decay_ms:50,muzzy_decay_ms:0")


def release_read_only() -> None:
    """Unmap pages of code and constants that were read, which takes 6 ms; one that is needed again comes from the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    for begin, end in read_only(_MAPS.read_text(), LIBRARY):
        if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_DONTNEED):
            log.warning(
                "Failed to release code and constants of the engine", err=os.strerror(ctypes.get_errno())
            )


def read_only(maps: str, library: str) -> Iterator[tuple[int, int]]:
    """Where its constants and its code are mapped, which nothing writes into; what comes after the code was relocated."""
    for line in maps.splitlines():
        where, mode, *_, name = line.split(maxsplit=5)
        if name.rpartition("/")[2] != library:
            continue
        begin, _, end = where.partition("-")
        if mode in ("r--p", "r-xp"):
            yield int(begin, 16), int(end, 16)
        if mode == "r-xp":
            return


RELEASE_SECONDS: Final = 2.0
"""After which code and constants that inserts, merges and queries have not needed since are not mapped any more."""
_SHOWN: Final = 300
"""Characters of a refusal that are shown."""
_ONE_THREAD: Final = "SET max_threads = 1"
"""A statement takes one core, so that records are still written, and less of both than if it is divided among threads."""
_PLAIN: Final = {"LowCardinality(String)": "String"}


def is_installed() -> bool:
    """Whether this installation has the engine."""
    return importlib.util.find_spec("chdb") is not None


class EmbeddedClickHouse:
    """Opens the directory with the first statement."""

    def __init__(self, directory: Path) -> None:
        self._lock = DirectoryLock(directory)
        self._reader, self._writer = (
            _Worker(self._lock, f"clickhouse {name}") for name in ("reads", "writes")
        )

    async def run(self, sql: str, parameters: Mapping[str, Value] | None = None) -> bytes:
        """The answer to a statement, which ends in its FORMAT.

        Raises Unavailable: it may or may not have been carried out.
        """
        values = {name: parameter_text(value) for name, value in (parameters or {}).items()}
        worker = self._reader if sql.startswith("SELECT ") else self._writer
        return await worker.run(sql, values)

    async def insert(self, table: str, columns: Mapping[str, str], rows: bytes) -> None:
        """Insert rows in JSONCompactEachRow with these columns, types by names.

        Raises Unavailable: they may or may not have been inserted.
        """
        structure = ", ".join(f"{name} {_PLAIN.get(kind, kind)}" for name, kind in columns.items())
        await self._writer.insert(f"INSERT INTO {table} ({', '.join(columns)})", structure, rows)

    async def close(self) -> None:
        """The next statement opens it anew."""
        await self._writer.close()
        await self._reader.close()


class _Worker:
    """A thread with its session, which is opened by the first statement."""

    def __init__(self, lock: DirectoryLock, name: str) -> None:
        self._lock = lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._session: Any = None
        self._released = time.monotonic()

    async def run(self, sql: str, values: dict[str, str]) -> bytes:
        """Raises Unavailable."""
        # of a caller that is cancelled the statement goes on, and the next one follows it
        return await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._run, sql, values)))

    async def insert(self, into: str, structure: str, rows: bytes) -> None:
        """Raises Unavailable."""
        await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._insert, into, structure, rows)))

    async def close(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._close)))

    def _insert(self, into: str, structure: str, rows: bytes) -> None:
        """Insert rows from a file in memory: of a text in the statement the engine would make copy after copy.

        Not send_insert of 26.9: on a full disk it answers that rows are written which are not.
        """
        with open(os.memfd_create("rows"), "wb") as file:  # noqa: PTH123 (a file without a path)
            file.write(rows)
            file.flush()
            source = f"file('/proc/self/fd/{file.fileno()}', JSONCompactEachRow, '{structure}')"
            self._run(f"{into} SELECT * FROM {source}", {})  # noqa: S608 (names of this program)
        if time.monotonic() - self._released >= RELEASE_SECONDS:
            release_read_only()
            self._released = time.monotonic()

    def _run(self, sql: str, values: dict[str, str]) -> bytes:
        try:
            statement, _, form = (
                sql.rpartition(" FORMAT ") if " FORMAT " in sql else (sql, "", "TabSeparated")
            )
            return bytes(self._opened().query(statement, form, params=values or None).bytes())
        except (RuntimeError, ValueError, OSError, ImportError) as error:
            # a session would put what a failed statement has already answered before the next answer
            self._close()
            raise Unavailable(f"{self._lock.directory}: {one_line(str(error))[:_SHOWN]}") from error

    def _opened(self) -> Any:
        if self._session is None:
            self._lock.acquire()
            try:
                self._session = _engine().Session(str(self._lock.directory))
                self._session.query(_ONE_THREAD)
            except BaseException:
                self._lock.release()
                raise
        return self._session

    def _close(self) -> None:
        if self._session:
            self._session.close()
            self._session = None
            self._lock.release()


@lru_cache(1)
def _engine() -> Any:
    """Loaded once in a process, which takes a second. Raises ImportError."""
    configure_allocator()
    session_module = importlib.import_module("chdb.session")
    release_read_only()
    return session_module


class DirectoryLock:
    """Lock of the engine's directory for one process. The error of the engine's own lock has no reason in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file: IO[str] | None = None
        self._users = 0
        self._guard = threading.Lock()

    def acquire(self) -> None:
        """Acquire the lock for one more session. Raises OSError: another process has it, or the directory cannot be made."""
        with self._guard:
            if self._file is None:
                self._file = self._locked()
            self._users += 1

    def release(self) -> None:
        """Release the lock for one session; after the last one another process can have it."""
        with self._guard:
            self._users -= 1
            if self._file and not self._users:
                self._file.close()
                self._file = None

    def _locked(self) -> IO[str]:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (self.directory / "lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise BlockingIOError("another process has the lock of this directory") from None
        except OSError:
            file.close()
            raise
        return file
