"""Joined records into the table `flows` of ClickHouse, a server or the embedded engine, which is made, or widened, before the first of them."""

from __future__ import annotations

import os
import ssl
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.flow import FlowRecord
from antrea.config.shape import seconds
from antrea.errors import Unavailable
from antrea.flow_aggregator.clickhouse_url import http_url
from antrea.flow_aggregator.flow_table import COLUMNS, LOCAL, OURS, TABLE, created, retained, widened
from antrea.outside.clickhouse.server import ClickHouseServer
from antrea.outside.clickhouse.store import LazyStore, rows_of
from antrea.outside.log import klog
from antrea.outside.tls.client_context import client_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.config.flow_aggregator import ClickHouse, FlowAggregatorConfig
    from antrea.outside.clickhouse.store import Store

log = klog.logger(__name__)

CA_FILE: Final = Path("/etc/flow-aggregator-certs/ca.crt")
"""CA of Secret clickhouse-ca, where the chart mounts it."""
_NAMES: Final = {field.encode_name: field.name for field in msgspec.structs.fields(FlowRecord)} | {
    "clusterUUID": "cluster_id"
}
WRITTEN: Final = {name: kind.partition(" ")[0] for name, kind in COLUMNS.items() if name in _NAMES}
"""Columns that a record has a value for, and their types."""
values_of = attrgetter(*(_NAMES[name] for name in WRITTEN))
_ENCODER: Final = msgspec.json.Encoder()
_TABLES: Final = (
    "SELECT name, comment, create_table_query FROM system.tables "
    "WHERE database = currentDatabase() AND name IN ({one:String}, {other:String}) FORMAT JSONCompactEachRow"
)
_PRESENT: Final = (
    "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
    "FORMAT TabSeparated"
)


class ClickHouseOutput:
    """Writes batches; the table is looked at again after each failure."""

    def __init__(self, store: Store, retention: str) -> None:
        """Rows of a table that was not there before are removed after `retention`."""
        self._store, self._retention = store, int(seconds(retention))
        self._is_ready = False

    async def write(self, records: Sequence[FlowRecord]) -> None:
        """Raises Unavailable."""
        if not self._is_ready:
            await prepare(self._store, self._retention)
            self._is_ready = True
        rows = _ENCODER.encode_lines(map(values_of, records))
        await self._store.insert(TABLE, WRITTEN, rows)

    async def close(self) -> None:
        self._is_ready = False
        await self._store.close()


def server_of(config: ClickHouse) -> ClickHouseServer:
    """The user and password are CH_USERNAME and CH_PASSWORD of the environment."""
    user, password = (os.environ.get(name, "") for name in ("CH_USERNAME", "CH_PASSWORD"))
    return ClickHouseServer(
        http_url(config.database_url), config.database, user, password, partial(_tls, config)
    )


def _tls(config: ClickHouse) -> ssl.SSLContext:
    """Raises Unavailable: the file of the CA cannot be read."""
    if config.tls.ca_cert and not config.tls.insecure_skip_verify:
        try:
            return client_context(cafile=str(CA_FILE))
        except (OSError, ssl.SSLError) as error:
            raise Unavailable(
                f"clickHouse.tls.caCert: {CA_FILE}: {error}; make Secret clickhouse-ca"
            ) from error
    tls = client_context()
    if config.tls.insecure_skip_verify:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def server_for_queries(config: FlowAggregatorConfig) -> Store | None:
    """The server that has the records, by connections of its own: a long query delays no insert."""
    return LazyStore(partial(server_of, config.click_house)) if config.click_house.enable else None


async def prepare(store: Store, retention: int) -> None:
    """Make the table, or add the columns that it lacks; rows and other columns stay. Raises Unavailable."""
    names = {"one": TABLE, "other": LOCAL}
    rows = rows_of(await store.run(_TABLES, parameters=names))
    if not rows:
        await store.run(created(retention))
        log.info("Created the table of flow records", table=TABLE)
    # rows of Theia's Distributed table are in the local one, which has to have a column first
    for name, comment, statement in sorted(rows, key=lambda row: row[0] != LOCAL):
        present = (await store.run(_PRESENT, parameters={"table": name})).decode().split()
        if change := widened(name, present):
            await store.run(change)
            log.info("Added columns to a table of flow records", table=name, statement=change)
        if name == TABLE and comment == OURS and (change := retained(statement, retention)):
            await store.run(change)
