"""One JSON-RPC connection to ovsdb-server (RFC 7047, chapter 4): framing, calls, notifications, echo."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.decoding import decode_json
from antrea.errors import AntreaError, Invalid, Unavailable
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

log = klog.logger(__name__)
_READ = 1 << 18
"""Bytes asked for at a time."""
_BACKSLASH = ord("\\")

# What is not a brace, strings whole, then one brace; possessive, so that an unfinished string is given up at once. Python before
# 3.11.5, as in Debian 12, gets possessive groups wrong (python/cpython#106052): greedy ones find the same, in more time.
_WHOLE = b"+" if sys.version_info >= (3, 11, 5) else b""
_NO_BRACE = rb'(?:[^"{}]++|"(?:[^"\\]++|\\.)*%b")*%b' % (_WHOLE, _WHOLE)
_TO_BRACE = re.compile(_NO_BRACE + rb"[{}]", re.DOTALL)
_TO_END = re.compile(_NO_BRACE, re.DOTALL)


class Splitter:
    """Cuts a byte stream into JSON objects, which OVSDB sends without any separator; looks at each byte once."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_string = False
        """Whether what was scanned ends within a string, as a list of all connections is one of megabytes."""

    def feed(self, data: bytes) -> list[bytes]:
        """The objects that `data` completes."""
        self._buffer += data
        whole: list[bytes] = []
        start = 0
        if self._in_string and not self._string_ends():
            return whole
        while match := _TO_BRACE.match(self._buffer, self._scanned):
            self._scanned = match.end()
            self._depth += 1 if self._buffer[self._scanned - 1] == ord("{") else -1
            if self._depth == 0:
                whole.append(bytes(memoryview(self._buffer)[start : self._scanned]))
                start = self._scanned
        self._scan_rest()
        del self._buffer[:start]
        self._scanned -= start
        return whole

    def _scan_rest(self) -> None:
        """Behind the last brace."""
        if match := _TO_END.match(self._buffer, self._scanned):
            self._scanned = match.end()
            self._in_string = self._scanned < len(self._buffer)
            if self._in_string:
                self._scanned = len(self._buffer)

    def _string_ends(self) -> bool:
        """Scan to the end of the string; false if it has not come yet."""
        while (at := self._buffer.find(b'"', self._scanned)) >= 0:
            self._scanned, first = at + 1, at
            while self._buffer[first - 1] == _BACKSLASH:
                first -= 1
            if (at - first) % 2 == 0:
                self._in_string = False
                return True
        self._scanned = len(self._buffer)
        return False


class RpcError(AntreaError):
    """The server answered a call with an error; `error` is its own value, usually {"error": ..., "details": ...}."""

    def __init__(self, error: Any) -> None:
        command = (
            [str(error.get(key, "")) for key in ("error", "details")]
            if isinstance(error, dict)
            else [str(error)]
        )
        super().__init__(": ".join(filter(None, command)))
        self.error = error


class _Message(msgspec.Struct):
    id: Any = None
    method: str | None = None
    params: Any = None
    result: Any = None
    error: Any = None


class Session:
    """An open connection; `run` reads it until it ends, after which every call raises Unavailable."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = 0
        self._pending: dict[int, tuple[asyncio.Future[Any], Callable[[Any], None]]] = {}
        self._ended = False
        self.on_notification: Callable[[str, Any], None] = lambda _method, _params: None

    @classmethod
    async def open(cls, path: str) -> Session:
        """Connect to the unix socket at `path`. Raises OSError."""
        return cls(*await asyncio.open_unix_connection(path, limit=_READ))

    async def call(
        self, method: str, *params: Any, then: Callable[[Any], None] = lambda _result: None
    ) -> Any:
        """The result of `method`. Raises RpcError, or Unavailable if the connection ends before the answer.

        `then` sees the result before any later message is looked at; the caller itself runs only afterwards.
        """
        if self._ended:
            raise Unavailable("no connection to OVSDB")
        self._ids += 1
        number = self._ids
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = (answer, then)
        try:
            self._send({"method": method, "params": params, "id": number})
            return await answer
        finally:
            self._pending.pop(number, None)

    async def run(self) -> None:
        """Dispatch what arrives, in order, until the connection ends."""
        splitter = Splitter()
        try:
            while data := await self._reader.read(_READ):
                for text in splitter.feed(data):
                    self._dispatch(decode_json(text, _Message, "message of OVSDB"))
        except ConnectionError:
            return
        except Invalid as error:
            log.error("Closing the connection to OVSDB", error=error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection now; pending calls raise Unavailable."""
        self._ended = True
        self._writer.close()
        for answer, _then in self._pending.values():
            if not answer.done():
                answer.set_exception(Unavailable("the connection to OVSDB ended before its answer"))

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(msgspec.json.encode(message))

    def _dispatch(self, message: _Message) -> None:
        if message.method == "echo":
            self._send({"id": message.id, "result": message.params, "error": None})
        elif message.method is not None:
            self.on_notification(message.method, message.params)
        elif (waiting := self._pending.get(message.id)) and not waiting[0].done():
            answer, then = waiting
            if message.error is not None:
                answer.set_exception(RpcError(message.error))
            else:
                then(message.result)
                answer.set_result(message.result)
