"""What every ClickHouse takes, whether a server elsewhere or the engine in this process: the same statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

Value = str | int | Sequence[str]
"""Of a {name:Type} in a statement: String or a number's type, or Array(String)."""
_ESCAPED: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"})
_QUOTED: Final = str.maketrans({"\\": "\\\\", "'": "\\'"})


class Store(Protocol):
    """Carries out statements, one after the other."""

    async def run(self, sql: str, data: bytes = b"", parameters: Mapping[str, Value] | None = None) -> bytes:
        """The answer to a statement, which ends in its FORMAT; `data` are rows of an INSERT.

        Raises Unavailable: it may or may not have been carried out.
        """

    async def close(self) -> None:
        """The next statement opens it anew."""


def parameter_text(value: Value) -> str:
    """A value as ClickHouse reads it for a parameter: text in the escapes of TabSeparated, an array of quoted texts.

    Source: https://clickhouse.com/docs/interfaces/http#tabs-in-url-parameters
    """
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value.translate(_ESCAPED)
    return f"[{','.join(_quoted(one) for one in value)}]"


def _quoted(text: str) -> str:
    return f"'{text.translate(_QUOTED)}'"
