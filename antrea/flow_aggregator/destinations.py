"""The destinations that the configuration turns on, and their exchange while records come: those that stay as they are lose nothing."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.config.shape import seconds
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput, server_of
from antrea.flow_aggregator.destination import Destination, IpfixOutput, LogOutput
from antrea.flow_aggregator.s3_output import S3Output
from antrea.outside.clickhouse.store import LazyStore
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord
    from antrea.config.flow_aggregator import FlowAggregatorConfig
    from antrea.outside.clickhouse.store import Store

log = klog.logger(__name__)

ENDING_SECONDS: Final = 10.0
"""For the last records of a destination that is turned off or changed."""


class Wanted(NamedTuple):
    """A destination of a configuration."""

    settings: Any
    """Settings from which it is made: a destination with equal settings is kept."""
    make: Callable[[], Destination]


class Destinations:
    """Present destinations, each with a buffer of its own."""

    def __init__(self, config: FlowAggregatorConfig, embedded: Store | None) -> None:
        """`embedded` with `store`."""
        self._embedded = embedded
        self._wanted = _wanted(config, embedded)
        self._all = {name: wanted.make() for name, wanted in self._wanted.items()}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def all(self) -> list[Destination]:
        """In a fixed order."""
        return [*self._all.values()]

    def offer(self, record: FlowRecord) -> None:
        """To each of them."""
        for destination in self._all.values():
            destination.offer(record)

    async def room(self) -> None:
        """Return once each that keeps up has room for more."""
        for destination in self.all:
            await destination.room()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for name, destination in self._all.items():
                self._work[name] = self._tasks.create_task(destination.run(), name=name)
            await asyncio.Event().wait()

    def change(self, config: FlowAggregatorConfig) -> None:
        """Go on with those of this configuration; others write what waits for them, and end."""
        before, self._wanted = self._wanted, _wanted(config, self._embedded)
        kept = {
            name: self._all[name]
            for name, wanted in self._wanted.items()
            if name in before and before[name].settings == wanted.settings
        }
        ending = {name: self._all[name] for name in before if name not in kept}
        begun = {name: wanted.make() for name, wanted in self._wanted.items() if name not in kept}
        self._all = {name: kept.get(name) or begun[name] for name in self._wanted}
        if self._tasks:
            for name in ending | begun:
                work = _exchange(ending.get(name), self._work.pop(name, None), begun.get(name))
                task = self._tasks.create_task(work, name=name)
                if name in begun:
                    self._work[name] = task
        if ending or begun:
            log.info("Changed the destinations of records", ended=sorted(ending), begun=sorted(begun))


async def _exchange(
    before: Destination | None, work: asyncio.Task[None] | None, after: Destination | None
) -> None:
    """Replace a destination: the old one writes first, since both may write the same file, and hands over what it cannot write."""
    if before and work:
        before.end()
        await asyncio.wait((work,), timeout=ENDING_SECONDS)
        work.cancel()
        await asyncio.wait((work,))
        if after:
            after.inherit(before)
        elif left := before.waiting:
            log.warning(
                "Dropped records that waited for a destination", destination=before.name, records=left
            )
    if after:
        await after.run()


def _wanted(config: FlowAggregatorConfig, embedded: Store | None) -> dict[str, Wanted]:
    """Return the configured destinations by name."""
    destinations: dict[str, Wanted] = {}
    requests, size = config.record_contents.requests, config.record_buffer_size

    def add(name: str, settings: Any, output: Callable[[], Any], *rest: Any) -> None:
        """`rest` is what a Destination takes after its buffer's size."""
        destinations[name] = Wanted(
            (settings, requests, size), lambda: Destination(name, output(), size, *rest)
        )

    if config.flow_logger.enable:
        add("flowLogger", config.flow_logger, partial(LogOutput, config.flow_logger, requests=requests))
    if config.flow_collector.enable:
        proxied = config.mode == "Proxy"
        output = partial(
            IpfixOutput, config.flow_collector, config.cluster_id, proxied=proxied, requests=requests
        )
        add("flowCollector", config.flow_collector, output)
    if config.click_house.enable:
        server = config.click_house
        store = partial(LazyStore, partial(server_of, server))
        add(
            "clickHouse", server, lambda: ClickHouseOutput(store(), server.retention), seconds(server.commit_interval)
        )  # fmt: skip
    if embedded:
        settings = config.store
        add(
            "store",
            settings,
            lambda: ClickHouseOutput(embedded, settings.retention),
            seconds(settings.commit_interval),
        )
    if config.s3_uploader.enable:
        to = config.s3_uploader
        rest = seconds(to.upload_interval), to.max_records_per_file
        add("s3Uploader", to, partial(S3Output, to, requests=requests), *rest)
    return destinations
