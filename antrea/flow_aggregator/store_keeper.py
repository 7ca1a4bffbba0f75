"""Keeps the embedded store within its size and its disk: records of the oldest hours make room, are counted and named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.config.shape import seconds
from antrea.errors import Unavailable
from antrea.flow_aggregator.clickhouse_output import prepare
from antrea.flow_aggregator.flow_table import TABLE
from antrea.outside.clickhouse.store import rows_of
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.config.flow_aggregator import FlowStore
    from antrea.outside.clickhouse.store import Store

log = klog.logger(__name__)

PERIOD: Final = 10.0
"""Seconds between looks."""
RESERVE: Final = 256_000_000
"""Bytes of the disk that stay free, for merges and for others."""
_MEGABYTE: Final = 1_000_000
_PARTITIONS: Final = (
    "SELECT partition_id, sum(rows), sum(bytes_on_disk) FROM system.parts "
    "WHERE database = currentDatabase() AND table = {table:String} AND active GROUP BY partition_id "
    "ORDER BY min(min_time), partition_id SETTINGS output_format_json_quote_64bit_integers = 0 "
    "FORMAT JSONCompactEachRow"
)
_FREE: Final = (
    "SELECT min(unreserved_space) FROM system.disks SETTINGS output_format_json_quote_64bit_integers = 0 "
    "FORMAT JSONCompactEachRow"
)
_SETTINGS: Final = (
    f"ALTER TABLE {TABLE} MODIFY SETTING old_parts_lifetime = 60, min_free_disk_bytes_to_perform_insert = "
)
"""Files that a merge has replaced go after a minute, where a server keeps them for eight; inserts end before the disk is
full, since a drop takes some bytes, too."""
_DROP: Final = f"ALTER TABLE {TABLE} DROP PARTITION ID {{partition:String}}"


class Partition(NamedTuple):
    """Partition, the unit that is dropped, with its size."""

    identity: str
    rows: int
    byte_count: int


def surplus(partitions: Sequence[Partition], most: int, free: int, reserve: int) -> list[Partition]:
    """Return the oldest partitions to drop so that `most` bytes remain in all, and `reserve` bytes of the disk are free.

    A store of less than `reserve` is left alone when the disk is full: the bytes are of others.
    """
    left = sum(partition.byte_count for partition in partitions)
    dropped = []
    for partition in partitions:
        if left <= most and (free >= reserve or left < reserve):
            break
        dropped.append(partition)
        left -= partition.byte_count
        free += partition.byte_count
    return dropped


class StoreKeeper:
    """Looks at the store at intervals, and makes its table at the start."""

    def __init__(self, store: Store, config: FlowStore, reserve: int = RESERVE) -> None:
        self._store, self._config, self._reserve = store, config, reserve
        self._is_ready = False
        self.removed = self.rows = self.byte_count = 0
        """Records that had to make room; those that are there, and the bytes that they take."""
        self.trouble = ""
        """Why the store could not be looked at; empty: it could."""

    def change(self, config: FlowStore) -> None:
        """Keep to these from the next look on."""
        if config != self._config:
            self._config, self._is_ready = config, False

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.keep()
                self.trouble = ""
            except Unavailable as error:
                if str(error) != self.trouble:
                    log.warning("Failed to look after the store of flow records", err=str(error))
                self.trouble = str(error)
            await asyncio.sleep(PERIOD)

    async def keep(self) -> None:
        """Look once. Raises Unavailable."""
        if not self._is_ready:
            await prepare(self._store, int(seconds(self._config.retention)))
            await self._store.run(f"{_SETTINGS}{self._reserve // 2}")
            self._is_ready = True
        rows = rows_of(await self._store.run(_PARTITIONS, parameters={"table": TABLE}))
        partitions = [Partition(*row) for row in rows]
        [[free]] = rows_of(await self._store.run(_FREE))
        self.rows = sum(partition.rows for partition in partitions)
        self.byte_count = sum(partition.byte_count for partition in partitions)
        for partition in surplus(partitions, self._config.max_size * _MEGABYTE, free, self._reserve):
            await self._drop(partition, "maxSize" if free >= self._reserve else "the disk is full")

    async def _drop(self, partition: Partition, why: str) -> None:
        await self._store.run(_DROP, parameters={"partition": partition.identity})
        self.removed += partition.rows
        self.rows -= partition.rows
        self.byte_count -= partition.byte_count
        log.warning(
            "Removed the oldest flow records", reason=why, records=partition.rows, bytes=partition.byte_count
        )


SIZE = Metric(
    "antrea_flow_aggregator_store_size_bytes", "gauge", "ALPHA", "Bytes of the records in the store."
)
COUNT = Metric(
    "antrea_flow_aggregator_store_record_count", "gauge", "ALPHA", "Number of records in the store."
)
REMOVED = Metric(
    "antrea_flow_aggregator_store_removed_record_count",
    "counter",
    "ALPHA",
    "Number of records that were removed from the store before their time, for its size or a full disk.",
)


def keeper_metrics(keeper: StoreKeeper) -> str:
    """In Prometheus' format."""
    rows = ((SIZE, keeper.byte_count), (COUNT, keeper.rows), (REMOVED, keeper.removed))
    return "".join(metric.text([Sample(value)]) for metric, value in rows)
