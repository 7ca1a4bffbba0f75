"""Interface to ClickHouse, whether a server elsewhere or the engine in this process: both take the same statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

Value = str | int | Sequence[str]
"""Value of a {name:Type} in a statement: String or a number's type, or Array(String)."""
_ESCAPED: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"})
_QUOTED: Final = str.maketrans({"\\": "\\\\", "'": "\\'"})


class Store(Protocol):
    """Carries out statements, one after the other."""

    async def run(self, sql: str, parameters: Mapping[str, Value] | None = None) -> bytes:
        """The answer to a statement, which ends in its FORMAT.

        Raises Unavailable: it may or may not have been carried out.
        """

    async def insert(self, table: str, columns: Mapping[str, str], rows: bytes) -> None:
        """Insert rows in JSONCompactEachRow with these columns, types by names.

        Raises Unavailable: they may or may not have been inserted.
        """

    async def close(self) -> None:
        """The next statement opens it anew."""


class LazyStore:
    """One that is made at its first statement, and anew after it was closed."""

    def __init__(self, made: Callable[[], Store]) -> None:
        """`made` raises Unavailable."""
        self._made = made
        self._store: Store | None = None

    async def run(self, sql: str, parameters: Mapping[str, Value] | None = None) -> bytes:
        """Raises Unavailable: it may or may not have been carried out."""
        return await self._opened_store().run(sql, parameters)

    async def insert(self, table: str, columns: Mapping[str, str], rows: bytes) -> None:
        """Raises Unavailable: they may or may not have been inserted."""
        await self._opened_store().insert(table, columns, rows)

    async def close(self) -> None:
        """The next statement opens it anew."""
        store, self._store = self._store, None
        if store:
            await store.close()

    def _opened_store(self) -> Store:
        if self._store is None:
            self._store = self._made()
        return self._store


def rows_of(text: bytes) -> list[list[Any]]:
    """The rows of an answer whose FORMAT is JSONCompactEachRow."""
    return msgspec.json.decode(b"[%s]" % b",".join(text.splitlines()), type=list[list[Any]])


def parameter_text(value: Value) -> str:
    """A value as ClickHouse reads it for a parameter: text in the escapes of TabSeparated, an array of quoted texts.

    Source: https://clickhouse.com/docs/interfaces/http#tabs-in-url-parameters
    """
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value.translate(_ESCAPED)
    return f"[{','.join(_quoted(element) for element in value)}]"


def _quoted(text: str) -> str:
    return f"'{text.translate(_QUOTED)}'"
