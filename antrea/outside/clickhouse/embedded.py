"""ClickHouse's own engine in this process (package chdb-core), with its rows in one directory.

The engine belongs to one process, which holds a lock on the directory. One thread reads and one does all else, each with
a session of its own, so that a long query delays no insert; the engine releases the interpreter while it works. What an
INSERT has answered is there after kill -9.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from antrea.apis.shown import one_line
from antrea.errors import Unavailable
from antrea.outside.clickhouse.store import parameter_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from antrea.outside.clickhouse.store import Value

_SHOWN: Final = 300
"""Characters of a refusal that are shown."""


def is_installed() -> bool:
    """Whether this installation has the engine."""
    return importlib.util.find_spec("chdb") is not None


class _Worker:
    """A thread with its session, which is opened by the first statement."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._session: Any = None

    async def run(self, sql: str, data: bytes, values: dict[str, str]) -> bytes:
        """Raises Unavailable."""
        # of a caller that is cancelled the statement goes on, and the next one follows it
        return await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._run, sql, data, values)))

    async def close(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._close)))

    def _run(self, sql: str, data: bytes, values: dict[str, str]) -> bytes:
        try:
            session = self._opened()
            statement, _, form = (
                sql.rpartition(" FORMAT ") if " FORMAT " in sql else (sql, "", "TabSeparated")
            )
            if not data:
                return bytes(session.query(statement, form, params=values or None).bytes())
            with session.send_insert(statement, form) as rows:
                rows.append(data)
                rows.finish()
        except (RuntimeError, ValueError, OSError, ImportError) as why:
            raise Unavailable(f"{self._directory}: {one_line(str(why))[:_SHOWN]}") from why
        return b""

    def _opened(self) -> Any:
        if self._session is None:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._session = importlib.import_module("chdb.session").Session(str(self._directory))
        return self._session

    def _close(self) -> None:
        if self._session:
            self._session.close()
        self._session = None


class EmbeddedClickHouse:
    """Opens the directory with the first statement."""

    def __init__(self, directory: Path) -> None:
        self._reader, self._writer = (
            _Worker(directory, f"clickhouse {name}") for name in ("reads", "writes")
        )

    async def run(self, sql: str, data: bytes = b"", parameters: Mapping[str, Value] | None = None) -> bytes:
        """The answer to a statement, which ends in its FORMAT; `data` are rows of an INSERT.

        Raises Unavailable: it may or may not have been carried out.
        """
        values = {name: parameter_text(value) for name, value in (parameters or {}).items()}
        worker = self._reader if sql.startswith("SELECT ") else self._writer
        return await worker.run(sql, data, values)

    async def close(self) -> None:
        """The next statement opens it anew."""
        await self._writer.close()
        await self._reader.close()
