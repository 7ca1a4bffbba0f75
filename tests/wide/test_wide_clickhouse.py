"""Records in ClickHouse: its own engine takes what the aggregator writes, into new tables and those that Theia made."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest
from certificates import SERVER, made
from clickhouse_engine import PASSWORD, serving
from free_port import free_port

from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import ClickHouse, ClickHouseTls
from antrea.errors import Unavailable
from antrea.flow_aggregator import clickhouse_output, destination
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput, server_of
from antrea.flow_aggregator.destination import MAX_PAUSE, Destination
from antrea.flow_aggregator.flow_table import COLUMNS
from antrea.outside.clickhouse.store import LazyStore
from antrea.outside.tls.server_context import Certificate, load_pair, server_tls
from lab import clickhouse_client

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.wide
TIMEOUT = 60.0
TEN_MINUTES = 600.0
RECORD = FlowRecord(
    source_ip="2001:db8::5", destination_ip="2001:db8::7", source_pod_name="<script>'\\\n\t\"", octet_total_count=2**63,
    flow_end_seconds=1795422000, cluster_id="c1",
)  # fmt: skip
LOCAL_ENGINE = (
    "ENGINE = MergeTree ORDER BY (timeInserted, flowEndSeconds) TTL timeInserted + INTERVAL 12 HOUR"
)
VIEW = (
    "ENGINE = SummingMergeTree ORDER BY sourcePodName AS "
    "SELECT sourcePodName, sum(octetTotalCount) AS octets FROM flows_local GROUP BY sourcePodName"
)
THEIA = "flowEndSeconds DateTime, sourceIP String, destinationIP String, sourcePodName String, trusted UInt8"


async def answer(config: ClickHouse, sql: str) -> str:
    server = server_of(config)
    try:
        return (await server.run(sql)).decode()
    finally:
        await server.close()


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> ClickHouse:
    monkeypatch.setenv("CH_PASSWORD", PASSWORD)
    return ClickHouse(enable=True, database_url=f"http://127.0.0.1:{free_port()}", commit_interval="1s")


def port_of(config: ClickHouse) -> int:
    return int(config.database_url.rpartition(":")[2])


def output_of(config: ClickHouse) -> ClickHouseOutput:
    return ClickHouseOutput(LazyStore(partial(server_of, config)), config.retention)


async def written(config: ClickHouse, *records: FlowRecord) -> None:
    output = output_of(config)
    try:
        await output.write(records)
    finally:
        await output.close()


async def test_a_new_table_has_all_columns_and_the_values_of_a_record(
    tmp_path: Path, config: ClickHouse
) -> None:
    async with serving(tmp_path, port_of(config)):
        await written(config, RECORD)
        await written(config, RECORD)
        found = await answer(
            config,
            "SELECT sourcePodName, octetTotalCount, toUnixTimestamp(flowEndSeconds), sourceIP, clusterUUID, httpVals "
            "FROM flows FORMAT JSONCompactEachRow",
        )
        row = [RECORD.source_pod_name, 2**63, RECORD.flow_end_seconds, "2001:db8::5", "c1", ""]
        assert [json.loads(line) for line in found.splitlines()] == [row, row]
        names = (await answer(config, "DESCRIBE TABLE flows FORMAT JSONCompactEachRow")).splitlines()
        assert len(names) == len(COLUMNS) + 1


async def test_the_client_prints_rows_as_upstreams_suite_reads_them(
    tmp_path: Path, config: ClickHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of 64 bits are in quotes, and times in ISO 8601; what is refused ends it."""
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", PASSWORD)
    words = [sys.executable, clickhouse_client.__file__, "--date_time_output_format=iso", "--format=JSONEachRow", f"--http-port={port_of(config)}"]  # fmt: skip
    async with serving(tmp_path, port_of(config)):
        await written(config, RECORD)
        for query, status in (
            ("SELECT * FROM flows WHERE (octetTotalCount != 0)", 0),
            ("SELECT * FROM x", 1),
        ):
            client = await asyncio.create_subprocess_exec(
                *words, f"--query={query}", stdout=asyncio.subprocess.PIPE
            )
            said, _ = await client.communicate()
            assert client.returncode == status
            if not status:
                row = json.loads(said)
                assert (row["octetTotalCount"], row["flowEndReason"]) == (str(2**63), 0)
                assert row["flowEndSeconds"] == "2026-11-23T08:20:00Z"


async def test_a_retention_that_changes_is_the_tables(tmp_path: Path, config: ClickHouse) -> None:
    show = "SELECT engine_full FROM system.tables WHERE name = 'flows' FORMAT TabSeparatedRaw"
    url = config.database_url
    async with serving(tmp_path, port_of(config)):
        await written(config, RECORD)
        assert "TTL timeInserted + toIntervalSecond(604800)" in await answer(config, show)
        await written(ClickHouse(database_url=url, retention="1h"), RECORD)
        assert "TTL timeInserted + toIntervalSecond(3600)" in await answer(config, show)
        await written(ClickHouse(database_url=url, retention="0"), RECORD)
        assert "TTL" not in await answer(config, show)
        assert await answer(config, "SELECT count() FROM flows FORMAT TabSeparated") == "3\n"


async def test_a_table_of_somebody_else_is_widened_and_loses_nothing(
    tmp_path: Path, config: ClickHouse
) -> None:
    """The columns that Theia's tables lack are those of later versions, as upstream's users found out."""
    async with serving(tmp_path, port_of(config)):
        made = f"CREATE TABLE flows ({THEIA}) ENGINE = MergeTree ORDER BY flowEndSeconds TTL flowEndSeconds + INTERVAL 100 YEAR"
        await answer(config, made)
        await answer(config, "INSERT INTO flows SELECT now(), '10.0.0.1', '10.0.0.2', 'old', 7")
        await written(config, RECORD)
        found = await answer(
            config,
            "SELECT sourceIP, trusted, httpVals FROM flows ORDER BY sourceIP FORMAT JSONCompactEachRow",
        )
        rows = [json.loads(line) for line in found.splitlines()]
        assert rows == [["10.0.0.1", 7, ""], ["2001:db8::5", 0, ""]]
        engine_text = await answer(config, "SELECT engine_full FROM system.tables WHERE name = 'flows'")
        assert "toIntervalYear(100)" in engine_text
        assert "timeInserted" not in engine_text


async def test_rows_of_theias_distributed_table_and_its_views_stay(
    tmp_path: Path, config: ClickHouse
) -> None:
    """`flows` leads to `flows_local`, from which views are fed; it lacks what upstream's versions since 1.13 have."""
    old = [*COLUMNS][: [*COLUMNS].index("clusterUUID")]
    kinds = {name: COLUMNS[name].replace("LowCardinality(String)", "String") for name in old}
    kinds |= {"timeInserted": "DateTime DEFAULT now()", "trusted": "UInt8 DEFAULT 0"}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    async with serving(tmp_path, port_of(config), cluster="theia"):
        for statement in (
            f"CREATE TABLE flows_local ({columns}) {LOCAL_ENGINE}",
            f"CREATE MATERIALIZED VIEW flows_pod_view {VIEW}",
            "CREATE TABLE flows AS flows_local ENGINE = Distributed('theia', currentDatabase(), flows_local, rand())",
            "INSERT INTO flows (sourceIP, sourcePodName, octetTotalCount, trusted) SELECT '10.0.0.1', 'old', 5, 7",
        ):
            await answer(config, statement)
        await written(
            config, RECORD, msgspec.structs.replace(RECORD, source_pod_name="old", octet_total_count=6)
        )
        rows = "SELECT sourceIP, trusted, clusterUUID, httpVals FROM flows ORDER BY trusted FORMAT JSONCompactEachRow"
        found = [json.loads(line) for line in (await answer(config, rows)).splitlines()]
        assert found == [["2001:db8::5", 0, "c1", ""]] * 2 + [["10.0.0.1", 7, "", ""]]
        for table in ("flows", "flows_local"):
            names = (
                await answer(
                    config, f"SELECT name FROM system.columns WHERE table = '{table}' FORMAT TabSeparated"
                )
            ).split()
            assert {*names} == {"timeInserted", "trusted", *COLUMNS}
        engines = "SELECT name, engine_full FROM system.tables WHERE name LIKE 'flows%' FORMAT TabSeparated"
        shown = dict(line.split("\t") for line in (await answer(config, engines)).splitlines())
        assert (shown["flows"].startswith("Distributed"), "toIntervalHour(12)" in shown["flows_local"]) == (
            True,
            True,
        )
        view = "SELECT sum(octets) FROM flows_pod_view WHERE sourcePodName = 'old' FORMAT TabSeparated"
        assert await answer(config, view) == "11\n"
        await answer(
            config, "DROP TABLE flows"
        )  # with threads of its own, which outlive the others of a process that is killed


async def test_records_wait_for_a_server_that_is_away_and_those_without_room_are_counted(
    tmp_path: Path, config: ClickHouse
) -> None:
    to = Destination("clickHouse", output_of(config), 4, 0.05)
    working = asyncio.create_task(to.run())
    for port in range(6):
        to.offer(FlowRecord(source_transport_port=port))
    async with asyncio.timeout(TIMEOUT):
        while not to.trouble:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert config.database_url in to.trouble
    async with serving(tmp_path, port_of(config)):
        async with asyncio.timeout(TIMEOUT):
            while to.exported < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        ports = await answer(config, "SELECT groupArray(sourceTransportPort) FROM flows FORMAT TabSeparated")
        assert (ports, to.dropped, to.trouble) == ("[2,3,4,5]\n", 2, "")
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


@contextlib.asynccontextmanager
async def over_tls(port: int, tls: ssl.SSLContext) -> AsyncIterator[tuple[int, set[asyncio.StreamWriter]]]:
    """A port at which the server answers over TLS, and its open connections."""
    connections = set[asyncio.StreamWriter]()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while octets := await reader.read(65536):
                writer.write(octets)
                await writer.drain()
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        there, to = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, to), copy(there, writer))
        connections.discard(writer)

    async with await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1], connections


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_ca_of_its_own_is_exchanged_while_records_come(
    tmp_path: Path, config: ClickHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the server's certificate, then, later, the file of the CA, as kubelet brings it; queries go on, too."""
    monkeypatch.setattr(clickhouse_output, "CA_FILE", tmp_path / "ca.crt")
    for pause in ("FIRST_PAUSE", "MAX_PAUSE"):
        monkeypatch.setattr(destination, pause, 0.2)
    cas = [made(f"authority-{at}", ca=True) for at in range(2)]
    pairs = [made("localhost", ca, usage=SERVER, names=("localhost",)) for ca in cas]
    tls = server_tls(Certificate(pairs[0].pem, pairs[0].key_pem))
    (tmp_path / "ca.crt").write_text(cas[0].pem)
    async with serving(tmp_path, port_of(config)), over_tls(port_of(config), tls) as (port, connections):
        own = ClickHouse(
            enable=True, database_url=f"https://localhost:{port}", tls=ClickHouseTls(ca_cert=True)
        )
        to, queries = (
            Destination("clickHouse", output_of(own), 1000, 0.05),
            LazyStore(partial(server_of, own)),
        )
        working = asyncio.create_task(to.run())

        async def there() -> int:
            try:
                return int(await queries.run("SELECT count() FROM flows FORMAT TabSeparated"))
            finally:
                while connections:  # the server has one connection at a time
                    connections.pop().close()

        for number in range(10):
            to.offer(FlowRecord(source_transport_port=number))
        await until(lambda: to.exported == 10)
        connections.pop().close()  # the server has one at a time
        assert await there() == 10
        load_pair(tls, Certificate(pairs[1].pem, pairs[1].key_pem))
        to.offer(FlowRecord(source_transport_port=10))
        await until(lambda: "certificate verify failed" in to.trouble)
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await queries.run("SELECT 1 FORMAT TabSeparated")
        (tmp_path / "ca.crt").write_text(cas[1].pem)
        await until(lambda: to.exported == 11)
        connections.pop().close()
        assert (await there(), to.trouble, to.dropped) == (11, "", 0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await queries.close()


@pytest.mark.timeout(900)
async def test_after_ten_minutes_without_a_server_the_newest_records_are_there(
    tmp_path: Path, config: ClickHouse, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten records a second come all the time, and there is room for 5,000."""
    to = Destination("clickHouse", output_of(config), 5000, 1)
    working, offered = asyncio.create_task(to.run()), 0
    begun = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - begun < TEN_MINUTES:
        to.offer(FlowRecord(source_transport_port=offered))
        offered += 1
        await asyncio.sleep(0.1)
    assert to.trouble
    assert to.dropped == max(offered - 5000, 0) > 0
    async with serving(tmp_path, port_of(config)):
        async with asyncio.timeout(MAX_PAUSE + TIMEOUT):
            while to.waiting or to.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)  # the server has one connection at a time
        there = "SELECT count(), min(sourceTransportPort), max(sourceTransportPort) FROM flows FORMAT JSONCompactEachRow"
        found = [int(one) for one in json.loads(await answer(config, there))]
    assert found == [5000, offered - 5000, offered - 1]
    assert to.exported + to.dropped == offered
    assert caplog.text.count("Failed to write flow records") == 1


async def test_a_wrong_password_is_named_and_never_shown(
    tmp_path: Path, config: ClickHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CH_PASSWORD", "guess")
    async with serving(tmp_path, port_of(config)):
        with pytest.raises(Unavailable, match=r"403: Code: 516.*Authentication failed") as refused:
            await written(config, RECORD)
    assert "guess" not in str(refused.value)
