"""The HTTP interface of a ClickHouse server.

Source: https://clickhouse.com/docs/interfaces/http
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

import aiohttp

from antrea.apis.shown import one_line
from antrea.errors import Unavailable
from antrea.outside.clickhouse.store import parameter_text

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from antrea.outside.clickhouse.store import Value

SECONDS: Final = 30.0
"""For one statement, with its connection."""
MAX_BYTES: Final = 16 << 20
"""Bytes of an answer."""
_SHOWN: Final = 300
"""Characters of a refusal that are shown."""


class ClickHouseServer:
    """Sends statements, each in a request of its own."""

    def __init__(
        self, url: str, database: str, user: str, password: str, make_tls: Callable[[], ssl.SSLContext]
    ) -> None:
        """`make_tls` is called again once no connection could be made: CAs may be others by then. It raises Unavailable."""
        self.url, self._database, self._make_tls = url, database, make_tls
        self._tls: ssl.SSLContext | None = None
        self._headers = {"X-ClickHouse-User": user or "default"}
        if password:
            self._headers["X-ClickHouse-Key"] = password
        self._session: aiohttp.ClientSession | None = None

    async def run(self, sql: str, parameters: Mapping[str, Value] | None = None) -> bytes:
        """The answer to a statement, which ends in its FORMAT; `parameters` are values of {name:Type} in it.

        Raises Unavailable: it may or may not have been carried out.
        """
        return await self._sent(sql, b"", parameters or {})

    async def insert(self, table: str, columns: Mapping[str, str], rows: bytes) -> None:
        """Insert rows in JSONCompactEachRow with these columns, types by names.

        Raises Unavailable: they may or may not have been inserted.
        """
        await self._sent(f"INSERT INTO {table} ({', '.join(columns)}) FORMAT JSONCompactEachRow", rows, {})

    async def _sent(self, sql: str, data: bytes, parameters: Mapping[str, Value]) -> bytes:
        """Raises Unavailable."""
        query = {"database": self._database, "query": sql}
        query |= {f"param_{name}": parameter_text(value) for name, value in parameters.items()}
        if self._session is None:
            limits = aiohttp.ClientTimeout(total=SECONDS)
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=limits)
        self._tls = self._tls or self._make_tls()
        try:
            async with self._session.post(
                self.url, params=query, data=BytesIO(data), ssl=self._tls, allow_redirects=False
            ) as answer:
                text = await _body(answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # aiohttp's own text has the address of an object, another one at each try
            known = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
                self._tls = None
            silent = isinstance(error, TimeoutError)
            nothing = f"no answer within {SECONDS:g} s" if silent else type(known).__name__
            raise Unavailable(f"{self.url}: {str(known) or nothing}") from error
        if answer.status != 200:
            shown = one_line(text.decode(errors="replace"))[:_SHOWN]
            raise Unavailable(f"{self.url}: {answer.status}: {shown}")
        return text

    async def close(self) -> None:
        """The next statement opens it anew."""
        if self._session:
            await self._session.close()
        self._session = None


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """Raises Unavailable, aiohttp.ClientError."""
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > MAX_BYTES:
            raise Unavailable(f"{answer.url.host}: the answer has more than {MAX_BYTES} bytes")
    return bytes(body)
