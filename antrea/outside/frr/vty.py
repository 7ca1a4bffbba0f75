"""Commands to a daemon of FRR over the socket that vtysh uses.

A command ends with NUL. An answer is text, three NULs and one byte of status.
Source: FRR 10.3 lib/vty.c vtysh_read, lib/command.h CMD_SUCCESS
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from antrea.decoding import decode_json
from antrea.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT: Final = 10.0
"""Seconds for one answer."""
MAX_ANSWER: Final = 32 << 20
"""Bytes of one answer: that on a neighbor has 10 KiB, a network of the configuration 30 bytes."""
MAX_COMMAND: Final = 1024
"""Characters of a command; FRR reads lines of 4,096."""
MAX_REASON: Final = 200
"""Characters of a reason."""
END: Final = b"\0\0\0"
SUCCESS: Final = 0


class Answer(NamedTuple):
    """Status and output of a command."""

    status: int
    text: str

    @property
    def why_not(self) -> str:
        """The reason of a failure, in one line; empty after success."""
        if self.status == SUCCESS:
            return ""
        return " ".join(self.text.split()).removeprefix("% ")[:MAX_REASON] or f"status {self.status}"


def checked(command: str) -> str:
    """Return a command that is one line of printable ASCII and that FRR does not filter. Raises Invalid.

    What users write gets here in parsed form only; this is the second lock, as a newline would begin a command of theirs.
    """
    if not 0 < len(command) <= MAX_COMMAND:
        raise Invalid("command to FRR", f"has {len(command)} characters, of 1 to {MAX_COMMAND}")
    if not all(" " <= character <= "~" and character != "|" for character in command):
        raise Invalid("command to FRR", "has a character that is not printable ASCII, or |")
    return command


class VtySocket:
    """One connection to a daemon. Its methods raise Unavailable when the daemon ends or does not answer."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Connect to the daemon with this socket, in the mode that allows configuration. Raises Unavailable."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=MAX_ANSWER)
        except OSError as error:
            raise Unavailable(f"{path.stem} of FRR at {path}: {error.strerror or error}") from error
        session = cls(path.stem, reader, writer)
        try:
            await session.run("enable")
        except BaseException:
            await session.close()
            raise
        return session

    async def run(self, command: str) -> Answer:
        """Run one command. Raises Invalid for one that is not a single line, Unavailable."""
        line = checked(command).encode() + b"\0"
        try:
            async with asyncio.timeout(TIMEOUT):
                self._writer.write(line)
                await self._writer.drain()
                text = await self._reader.readuntil(END)
                status = await self._reader.readexactly(1)
        except TimeoutError as error:
            raise Unavailable(f"{self.name} of FRR has not answered for {TIMEOUT:g} s") from error
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise Unavailable(f"{self.name} of FRR: {error or type(error).__name__}") from error
        return Answer(status[0], text[: -len(END)].decode(errors="replace"))

    async def json(self, command: str) -> Any:
        """Return the decoded output of a `show` command that ends with json; None for none. Raises Unavailable."""
        answer = await self.run(command)
        if answer.status != SUCCESS or not answer.text.strip():
            return None
        try:
            return decode_json(answer.text.encode(), Any, command)
        except Invalid as error:
            raise Unavailable(f"{self.name} of FRR: {error}") from error

    def is_open(self) -> bool:
        """Whether the daemon has not closed the connection, as it does when it ends."""
        return not self._reader.at_eof()

    async def close(self) -> None:
        """Close the connection; what goes wrong then is of no interest."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
