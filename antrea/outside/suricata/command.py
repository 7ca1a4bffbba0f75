"""Orders to a running Suricata by its command socket.

Source: docs.suricata.io/en/suricata-7.0.10/unix-socket (Protocol), multi-tenant
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT: Final = 30.0
"""Seconds for one answer: a tenant with 1,000 signatures takes 3.4 s."""
PING_PATIENCE: Final = 10.0
"""Seconds for the answer to an order that does nothing."""
MAX_ANSWER: Final = 1 << 20
"""Bytes of one answer."""
MAX_WHY: Final = 200
"""Characters of a reason."""


class Hung(Unavailable):
    """An engine is there, and does not answer."""


class CommandSocket:
    """One connection. Its methods raise Unavailable when the engine ends or does not answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._turn = asyncio.Lock()

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Raises Unavailable if nothing listens there."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=MAX_ANSWER)
        except OSError as error:
            raise Unavailable(f"the L7 engine at {path}: {error.strerror or error}") from error
        session = cls(reader, writer)
        try:
            await session._ask({"version": "0.2"})
        except BaseException:
            await session.close()
            raise
        return session

    async def ping(self) -> None:
        """Raises Hung if the engine does not answer in time."""
        await self._ask({"command": "uptime"}, PING_PATIENCE)

    async def order(self, command: str, **arguments: Any) -> str:
        """Why the engine refuses; empty if it does not."""
        answer = await self._ask({"command": command, **({"arguments": arguments} if arguments else {})})
        if answer.get("return") == "OK":
            return ""
        return f"{command}: {str(answer.get('message', ''))[:MAX_WHY]}"

    def is_open(self) -> bool:
        """Whether the engine has not closed it, as it does when it ends."""
        return not self._reader.at_eof()

    async def close(self) -> None:
        """Release it; what goes wrong then is of no interest."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, question: dict[str, Any], patience: float = 0) -> dict[str, Any]:
        patience = patience or TIMEOUT
        async with self._turn:
            try:
                async with asyncio.timeout(patience):
                    self._writer.write(msgspec.json.encode(question) + b"\n")
                    await self._writer.drain()
                    line = await self._reader.readuntil(b"\n")
            except TimeoutError as error:
                raise Hung(f"an answer of the L7 engine for {patience:g} s") from error
            except (OSError, EOFError, asyncio.LimitOverrunError) as error:
                raise Unavailable(f"an answer of the L7 engine: {error or type(error).__name__}") from error
        try:
            return decode_json(line, dict[str, Any], "answer")
        except Invalid as error:
            raise Unavailable(f"an answer of the L7 engine: {error.why}") from error
