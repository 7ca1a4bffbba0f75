"""Streams of records, turned on and off while the program runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.flow_aggregator.flow_buffer import FlowBuffer
from antrea.flow_aggregator.flow_stream import FlowStreams
from antrea.outside.log import klog

if TYPE_CHECKING:
    import ssl

    from antrea.apis.flow import FlowRecord
    from antrea.config.flow_aggregator import FlowStreamService
    from antrea.outside.apiserver.authentication import Authentication
    from antrea.outside.apiserver.authorization import Authorization

log = klog.logger(__name__)


class StreamService:
    """Has a buffer of records while it is on."""

    def __init__(self, config: FlowStreamService, size: int) -> None:
        """`size` is the number of records of the buffer."""
        self._config, self._size = config, size
        self._buffer: FlowBuffer[FlowRecord] | None = FlowBuffer(size) if config.enable else None
        self._tls: ssl.SSLContext | None = None
        self._changed = asyncio.Event()
        self.streams: FlowStreams | None = None
        """Server of streams; None: streams are off, or not served yet."""

    def offer(self, record: FlowRecord) -> None:
        """One more for those who follow."""
        if self._buffer:
            self._buffer.offer(record)

    def change(self, config: FlowStreamService) -> None:
        """Serve with this configuration from now on; open streams end."""
        if config == self._config:
            return
        self._config = config
        self._buffer = (self._buffer or FlowBuffer(self._size)) if config.enable else None
        self._changed.set()

    async def present(self, context: ssl.SSLContext) -> None:
        """Use this certificate from now on; streams over the one before end."""
        self._tls = context
        if self.streams:
            await self.streams.present(context)

    async def run(self, judges: tuple[Authentication, Authorization]) -> None:
        """Run until cancelled. Raises Unavailable if the port is taken."""
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as tasks:
                serving = self._buffer and tasks.create_task(self._serve(self._buffer, judges))
                await self._changed.wait()
                if serving:
                    serving.cancel()
            self.streams = None

    async def _serve(
        self, buffer: FlowBuffer[FlowRecord], judges: tuple[Authentication, Authorization]
    ) -> None:
        config = self._config
        self.streams = FlowStreams(buffer, None if config.anonymous else judges)
        if self._tls:
            await self.streams.present(self._tls)
        if config.anonymous:
            log.warning("Streaming records to any client that reaches the port", port=config.port)
        await self.streams.serve(config.port, lambda port: log.info("Streaming flow records", port=port))
