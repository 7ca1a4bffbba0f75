"""Where joined records go: each destination has a buffer of its own, so that one that is slow or away costs the others nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from antrea.config.agent_sections import AuditLogging
from antrea.config.shape import collector, seconds
from antrea.errors import AntreaError, Unavailable
from antrea.flow_aggregator.log_line import log_line, passes
from antrea.ipfix.json_message import JsonWriter
from antrea.ipfix.message import MessageWriter, domain_of
from antrea.ipfix.template import Contents
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.log import klog
from antrea.outside.log.rotated_file import RotatedFile
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import VERSIONS, Certificate, load_pair

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from antrea.apis.flow import FlowRecord
    from antrea.config.flow_aggregator import FlowCollector, FlowLogger

log = klog.logger(__name__)

MAX_RECORDS: Final = 1000
"""Records that are written at a time."""
MAX_OF_INTERVAL: Final = 10_000
"""The same of a destination that takes them at intervals."""
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
"""Seconds between tries."""
TIMEOUT: Final = 10.0
"""Seconds for which others wait for one whose buffer gets full; it is slow if that was in vain."""


class Output(Protocol):
    """Writes records, until it fails."""

    async def write(self, records: Sequence[FlowRecord]) -> None:
        """Raises AntreaError, OSError: none of them may have been written."""

    async def close(self) -> None:
        """The next write opens it anew."""


class Destination:
    """A bounded buffer before an output."""

    def __init__(
        self, name: str, output: Output, size: int, interval: float = 0, most: int = MAX_OF_INTERVAL
    ) -> None:
        """Records are written every `interval` seconds, at most so many at a time, and as soon as that many, or half of `size`, wait.

        `interval` 0: at once.
        """
        self.name, self._output, self._interval = name, output, interval
        self._most = most if interval else MAX_RECORDS
        self._enough = min(self._most, (size + 1) // 2)
        self._many = asyncio.Event()
        self._filled = max(size * 3 // 4, 1)
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_slow = False
        self._waiting: deque[FlowRecord] = deque(maxlen=size)
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self.exported = self.dropped = 0
        self.trouble = ""
        """Why nothing can be written; empty: it can."""

    @property
    def waiting(self) -> int:
        """Records that are not written yet."""
        return len(self._waiting)

    def offer(self, record: FlowRecord) -> None:
        """Write it soon; the oldest that waits makes room."""
        if len(self._waiting) == self._waiting.maxlen:
            self.dropped += 1
        self._waiting.append(record)
        self._news.set()
        if len(self._waiting) >= self._enough:
            self._many.set()
        if len(self._waiting) >= self._filled:
            self._has_room.clear()

    async def room(self) -> None:
        """Return once a quarter of the buffer is free; at once if the output fails or was slow since the buffer was last empty."""
        if self.trouble or self._is_slow:
            return
        await _set_within(self._has_room, TIMEOUT)
        self._is_slow = not self._has_room.is_set()

    def end(self) -> None:
        """Let `run` return once it has written what waits, if that is possible at once."""
        self._ended.set()
        self._news.set()
        self._many.set()

    def inherit(self, other: Destination) -> None:
        """Go on with what another that has ended could not write, and with its counts."""
        left, other._waiting = [*other._waiting], deque()
        self.exported += other.exported
        self.dropped += other.dropped
        self._put_back(left)
        if self._waiting:
            self._news.set()

    async def run(self) -> None:
        """Write records until cancelled, or until `end`; then write what waits, if that is possible at once."""
        try:
            await self._run()
        finally:
            if self._waiting and not self.trouble:
                await self._write()
            await self._output.close()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._ended.is_set():
            await self._news.wait()
            if self._interval:
                await _set_within(self._many, self._interval)
                self._many.clear()
            if await self._write():
                pause = FIRST_PAUSE
            else:
                await _set_within(self._ended, pause)
                pause = min(2 * pause, MAX_PAUSE)

    async def _write(self) -> bool:
        """Whether nothing is left that could not be written."""
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            try:
                await self._output.write(some)
            except (AntreaError, OSError) as error:
                self._failed(some, str(error))
                await self._output.close()
                return False
            self.exported += len(some)
            self.trouble = ""
            if len(self._waiting) < self._filled:
                self._has_room.set()
        self._news.clear()
        self._is_slow = False
        return True

    def _failed(self, some: list[FlowRecord], why: str) -> None:
        self._put_back(some)
        self._has_room.set()  # it is not awaited any longer
        if why != self.trouble:
            log.warning("Failed to write flow records", destination=self.name, err=why)
        self.trouble = why

    def _put_back(self, some: list[FlowRecord]) -> None:
        room = (self._waiting.maxlen or 0) - len(self._waiting)
        self.dropped += max(len(some) - room, 0)
        self._waiting.extendleft(reversed(some[len(some) - min(room, len(some)) :]))


async def _set_within(event: asyncio.Event, wait: float) -> None:
    """Return once it is set, or after so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait):
            await event.wait()


class LogOutput:
    """The flow log."""

    def __init__(self, config: FlowLogger, *, requests: bool) -> None:
        self._config, self._requests = config, requests
        limits = AuditLogging(
            max_size=config.max_size,
            max_backups=config.max_backups,
            max_age=config.max_age,
            compress=config.compress,
        )
        self._file = RotatedFile(Path(config.path), limits)

    async def write(self, records: Sequence[FlowRecord]) -> None:
        pretty = self._config.pretty_print
        lines = [
            log_line(record, pretty=pretty, requests=self._requests)
            for record in records
            if passes(record, self._config.filters)
        ]
        if lines:
            await asyncio.to_thread(self._write, ("\n".join(lines) + "\n").encode())

    def _write(self, text: bytes) -> None:
        if self._file.write(text):
            self._file.tidy()

    async def close(self) -> None:
        self._file.close()


COLLECTOR_FILES: Final = Path("/etc/flow-collector-certs")
"""Where the chart mounts the Secrets of `flowCollector.tls`."""


class IpfixOutput:
    """Another collector."""

    def __init__(self, config: FlowCollector, cluster: str, *, proxied: bool, requests: bool) -> None:
        self._config, self._proxied = config, proxied
        self._contents = Contents(requests, config.include_k8s_names, config.include_k8s_uids, direction=True)
        self._domain = config.observation_domain_id or domain_of(cluster)
        self._session: CollectorSession | None = None

    async def write(self, records: Sequence[FlowRecord]) -> None:
        if self._session is None:
            host, port, protocol = collector(self._config.address)
            whose = {"aggregated": not self._proxied, "proxied": self._proxied}
            writer = (
                JsonWriter(self._contents, **whose)
                if self._config.record_format == "JSON"
                else MessageWriter(self._domain, contents=self._contents, **whose)
            )
            refresh, most = seconds(self._config.template_refresh_timeout), self._config.max_ipfix_msg_size
            session = CollectorSession(writer, template_seconds=refresh, most=most)
            # tcp is the default here, and tls the one of agents
            await session.open(
                host, port, "udp" if protocol == "udp" else "tcp", await asyncio.to_thread(self._tls),
                self._config.tls.server_name or host,
            )  # fmt: skip
            self._session = session
        await self._session.export(records)

    def _tls(self) -> ssl.SSLContext | None:
        """Read the TLS files as they are now. Raises Unavailable, Invalid."""
        settings = self._config.tls
        if not settings.enable:
            return None
        name = "caSecretName"
        try:
            tls = client_context(cafile=str(COLLECTOR_FILES / "ca.crt") if settings.ca_secret_name else None)
            name = "clientSecretName"
            if settings.client_secret_name:
                texts = [(COLLECTOR_FILES / f"tls.{suffix}").read_text() for suffix in ("crt", "key")]
                load_pair(tls, Certificate(*texts))
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"flowCollector.tls.{name}: a Secret without what it should have: {error}"
            ) from error
        tls.minimum_version = VERSIONS[settings.min_version]
        return tls

    async def close(self) -> None:
        if self._session:
            await self._session.close()
        self._session = None
