"""Messages on an HTTP/2 stream, each after five bytes: whether it is compressed, and its length.

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from urllib.parse import quote, unquote

from antrea.errors import Invalid

PREFIX: Final = Struct("!BI")
MAX_BYTES: Final = 1 << 20
"""Bytes of a message that is taken."""
CONTENT_TYPE: Final = "application/grpc"
OK, CANCELLED, INVALID_ARGUMENT, PERMISSION_DENIED, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = (
    0, 1, 3, 7, 12, 14, 16,
)  # fmt: skip
"""Values of grpc-status."""


def framed(message: bytes) -> bytes:
    """A message as it is on the stream."""
    return PREFIX.pack(0, len(message)) + message


class MessageSplitter:
    """Finds the messages in what comes on a stream; what is not complete yet waits, at most `most` bytes of it."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._waiting = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Messages that are complete now. Raises Invalid: one is compressed, or too long."""
        self._waiting += data
        messages, at = [], 0
        while len(self._waiting) - at >= PREFIX.size:
            compressed, length = PREFIX.unpack_from(self._waiting, at)
            if compressed:
                raise Invalid("gRPC message", "it is compressed, which was not agreed on")
            if length > self._most:
                raise Invalid("gRPC message", f"{length} bytes are more than {self._most}")
            end = at + PREFIX.size + length
            if end > len(self._waiting):
                break
            messages.append(bytes(self._waiting[at + PREFIX.size : end]))
            at = end
        del self._waiting[:at]
        return messages

    def expect_end(self) -> None:
        """Raises Invalid: the stream ended within a message."""
        if self._waiting:
            raise Invalid("gRPC message", "the stream ends within it")


def status_text(headers: dict[str, str]) -> str:
    """The outcome of a call that its server has ended."""
    status, said = headers.get("grpc-status", ""), unquote(headers.get("grpc-message", ""))[:200]
    if status == str(OK):
        return "it ended the call"
    shown = f"gRPC status {status}" if status else f"HTTP status {headers.get(':status', 'unknown')}"
    return f"it ended the call: {shown}{f', {said}' if said else ''}"


def trailers(status: int, message: str = "") -> list[tuple[str, str]]:
    """Return the trailers by which a server ends a call."""
    headers = [("grpc-status", str(status))]
    return [*headers, ("grpc-message", quote(message, safe=" !#$&'()*+,/:;=?@[]"))] if message else headers
