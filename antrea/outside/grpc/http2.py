"""One side of an HTTP/2 connection: the only use of h2, whose errors are Invalid for what comes, and StreamGone for what is sent.

h2 raises more than its ProtocolError: UnicodeDecodeError for header bytes that are not UTF-8, and errors of Python for what it does not
expect of a peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import Settings

from antrea.decoding import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from h2.events import Event
    from h2.settings import SettingCodes

T = TypeVar("T")


class StreamGone(OSError):
    """The peer has ended the stream or the connection, or nothing can be sent on it for another reason."""


class Http2:
    """The state of one connection; the caller moves the bytes."""

    def __init__(self, *, client: bool) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=client, header_encoding="utf-8"))
        self._client = client

    def begin(self, settings: Mapping[SettingCodes, int] | None = None, window: int = 0) -> None:
        """Begin, with these settings of ours and `window` more bytes for the whole connection."""
        if settings is not None:
            self._h2.local_settings = Settings(client=self._client, initial_values=dict(settings))
        self._h2.initiate_connection()
        if window:
            self._h2.increment_flow_control_window(window)

    def receive(self, data: bytes) -> list[Event]:
        """Return the events of these bytes of the peer. Raises Invalid: the connection is to end."""
        return guarded("HTTP/2", self._h2.receive_data, data)

    def output(self) -> bytes:
        """The bytes that are to be written now."""
        return self._h2.data_to_send()

    def open_stream(self, headers: Iterable[tuple[str, str]]) -> int:
        """Begin a stream; returns its number. Raises StreamGone."""
        stream = _sent(self._h2.get_next_available_stream_id)
        self.send_headers(stream, headers)
        return stream

    def send_headers(
        self, stream: int, headers: Iterable[tuple[str, str]], *, end_stream: bool = False
    ) -> None:
        """Raises StreamGone."""
        _sent(lambda: self._h2.send_headers(stream, list(headers), end_stream=end_stream))

    def send_data(self, stream: int, data: bytes) -> None:
        """Raises StreamGone."""
        _sent(lambda: self._h2.send_data(stream, data))

    def end_stream(self, stream: int) -> None:
        """Raises StreamGone."""
        _sent(lambda: self._h2.end_stream(stream))

    def room(self, stream: int) -> int:
        """How many bytes can be sent on it now, in one frame. Raises StreamGone."""
        return _sent(
            lambda: min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
        )

    def acknowledge(self, byte_count: int, stream: int) -> None:
        """Give the peer room for as much again. Raises StreamGone."""
        if byte_count:
            _sent(lambda: self._h2.acknowledge_received_data(byte_count, stream))


def _sent(call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        raise StreamGone(f"{type(error).__name__}: {error}"[:200]) from error
