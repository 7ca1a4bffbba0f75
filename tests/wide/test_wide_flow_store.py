"""The aggregator's own store: killed while it inserts, widened from older versions, kept within size and disk, as a server answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_engine import ROOT, TIMEOUT, engine_folder, serving
from free_port import free_port

from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import ClickHouse, FlowStore
from antrea.errors import Unavailable
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput, prepare, server_of
from antrea.flow_aggregator.flow_table import COLUMNS, created
from antrea.flow_aggregator.query import QUERIES, answer
from antrea.flow_aggregator.store_keeper import StoreKeeper
from antrea.outside.clickhouse import embedded
from antrea.outside.clickhouse.embedded import LIBRARY, EmbeddedClickHouse
from antrea.outside.clickhouse.store import LazyStore, rows_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.outside.clickhouse.store import Store

pytestmark = pytest.mark.wide
DAY = 24 * 3600
HOSTILE = "<script>'\\\n\t\"{x:String}"
PEOPLE = [
    FlowRecord(
        source_ip="10.0.0.1", destination_ip=f"2001:db8::{port:x}", source_pod_name=HOSTILE, source_pod_namespace="shop",
        destination_pod_name="db-0", destination_pod_namespace="data" if port % 2 else "shop",
        destination_service_port_name="data/db:sql", source_transport_port=port, destination_transport_port=5432,
        protocol_identifier=6, octet_delta_count=2**40 + port, ingress_network_policy_name="p", egress_name="out",
        ingress_network_policy_type=1, ingress_network_policy_rule_action=1 + port % 3, flow_end_seconds=1795422000 + port,
    )
    for port in range(1, 30)
]  # fmt: skip
KILLED = """
import asyncio, sys
from pathlib import Path
from antrea.apis.flow import FlowRecord
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

async def main():
    output, count = ClickHouseOutput(EmbeddedClickHouse(Path(sys.argv[1])), "168h"), 0
    while True:
        await output.write([FlowRecord(source_transport_port=n % 60000) for n in range(5000)])
        count += 5000
        print(count, flush=True)

asyncio.run(main())
"""
FULL = """
import asyncio, os, sys
from pathlib import Path
from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import FlowStore
from antrea.errors import Unavailable
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput
from antrea.flow_aggregator.destination import Destination
from antrea.flow_aggregator.store_keeper import StoreKeeper
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

async def main():
    store = EmbeddedClickHouse(Path("/mnt/store"))
    keeper = StoreKeeper(store, FlowStore(max_size=1000), 8_000_000)
    await keeper.keep()
    to = Destination("store", ClickHouseOutput(store, "168h"), 5000, 0.01)
    working, offered = asyncio.create_task(to.run()), 0
    while not to.trouble and offered < 3_000_000:
        to.offer(FlowRecord(source_pod_name=os.urandom(40).hex()))
        offered += 1
        if offered % 1000 == 0:
            await asyncio.sleep(0)
            while len(to._waiting) > 2500 and not to.trouble:
                await asyncio.sleep(0.01)
    print(to.trouble)
    for _ in range(6000):
        to.offer(FlowRecord(source_pod_name=os.urandom(40).hex()))
        offered += 1
    await keeper.keep()
    while to.trouble or to._waiting:
        await asyncio.sleep(0.05)
    await keeper.keep()
    assert to.dropped >= 1000, to.dropped
    assert offered == to.exported + to.dropped, (offered, to.exported, to.dropped)
    assert keeper.removed + keeper.rows == to.exported, (keeper.removed, keeper.rows, to.exported)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    print("counted")

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(engine_folder()))
    monkeypatch.setenv("PYTHONPATH", f"{engine_folder()}:{ROOT}")


@contextlib.asynccontextmanager
async def a_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    monkeypatch.setenv("CH_PASSWORD", "let me in")
    port = free_port()
    async with serving(folder, port):
        found = LazyStore(partial(server_of, ClickHouse(database_url=f"http://127.0.0.1:{port}")))
        yield found
        await found.close()


@pytest.fixture(params=["embedded", "server"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    """Both, one after the other."""
    if request.param == "embedded":
        own = EmbeddedClickHouse(tmp_path / "store")
        yield own
        await own.close()
        return
    async with a_server(tmp_path, monkeypatch) as found:
        yield found


async def count(store: Store, condition: str = "1") -> int:
    [[found]] = rows_of(
        await store.run(f"SELECT count() FROM flows WHERE {condition} FORMAT JSONCompactEachRow")
    )
    return int(found)


async def test_both_stores_answer_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[tuple[str, dict[str, str], list[str] | None]] = [
        (name, asked, names)
        for names in (None, ["shop"], ["shop", "data"], ["x' OR 1 --"])
        for name, asked in [
            *((name, {}) for name in QUERIES if name != "policies"), ("map", {"by": "service"}),
            ("flows", {"pod": f"shop/{HOSTILE}".replace("\n", "").replace("\t", ""), "dstip": "2001:DB8::5", "limit": "3"}),
            *(("top", {"by": by, "action": "denied"}) for by in ("source", "destination", "policy", "egress", "egress-source", "namespace")),
            ("policies", {"since": "744h", "step": "744h"}), ("map", {"by": "workload", "protocol": "tcp", "port": "5432"}),
        ]
    ]  # fmt: skip
    own = EmbeddedClickHouse(tmp_path / "embedded")
    async with a_server(tmp_path, monkeypatch) as server:
        found = []
        for one in (own, server):
            await ClickHouseOutput(one, "168h").write(PEOPLE)
            found.append([without_times(await answer(one, *question)) for question in questions])
    await own.close()
    assert found[0] == found[1]
    everything, of_shop = (
        one for one, (name, asked, who) in zip(found[0], questions, strict=True)
        if name == "flows" and not asked and who in (None, ["shop"])
    )  # fmt: skip
    assert [row["sourcePodName"] for row in everything["rows"]] == [HOSTILE] * len(PEOPLE)
    assert {row["destinationPodNamespace"] for row in of_shop["rows"]} == {"shop"}
    assert len(of_shop["rows"]) == len([one for one in PEOPLE if one.destination_pod_namespace == "shop"])


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    for row in found.get("rows", ()):
        row.pop("timeInserted", None)
    for policy in found.get("policies", ()):
        for point in policy["points"]:
            point.pop("time")
    return found


async def test_three_older_versions_become_the_newest_and_lose_nothing(store: Store) -> None:
    """Without what Theia 0.1 to 0.3, upstream 1.9 to 1.15 and 2.0 lacked; a row of each, and a record of today in the end."""
    names = [*COLUMNS]
    versions = [names.index(one) for one in ("throughput", "clusterUUID", "egressNodeName")]
    first = ", ".join(f"{name} {COLUMNS[name]}" for name in names[: versions[0]])
    await store.run(
        f"CREATE TABLE flows (timeInserted DateTime DEFAULT now(), {first}, trusted UInt8) ENGINE = MergeTree "
        "ORDER BY (timeInserted, flowEndSeconds) TTL timeInserted + INTERVAL 12 HOUR"
    )
    for number, last in enumerate((*versions, len(names))):
        if last == len(names):
            await prepare(store, 7 * DAY)
        else:
            added = names[versions[number - 1] if number else last : last]
            parts = ", ".join(f"ADD COLUMN IF NOT EXISTS {name} {COLUMNS[name]}" for name in added)
            await store.run(f"ALTER TABLE flows {parts}" if parts else "SELECT 1")
        await store.run(f"INSERT INTO flows (sourceIP, trusted) SELECT '10.0.0.{number}', 7")
    await ClickHouseOutput(store, "168h").write([FlowRecord(source_ip="10.0.0.9", egress_node_name="n1")])
    found = await answer(store, "flows", {}, None)
    assert sorted(row["sourceIP"] for row in found["rows"]) == [
        f"10.0.0.{number}" for number in (0, 1, 2, 3, 9)
    ]
    assert {*found["rows"][0]} == {"timeInserted", *COLUMNS}
    assert await count(store, "trusted = 7") == 4
    text = (
        await store.run("SELECT engine_full FROM system.tables WHERE name = 'flows' FORMAT TabSeparatedRaw")
    ).decode()
    assert "toIntervalHour(12)" in text


async def test_before_the_first_record_there_are_none(store: Store) -> None:
    for name in QUERIES:
        found = await answer(store, name, {}, None)
        assert not any(found[key] for key in found.keys() - {"step"})


async def test_rows_go_with_their_age(store: Store) -> None:
    await store.run(created(DAY))
    await store.run("INSERT INTO flows (timeInserted) SELECT now() - 3600 * number FROM numbers(48)")
    await store.run("OPTIMIZE TABLE flows FINAL")
    assert await count(store, f"timeInserted < now() - {DAY + 60}") == 0
    assert await count(store) >= 23


async def test_the_oldest_hours_make_room_and_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = EmbeddedClickHouse(tmp_path / "store")
    keeper = StoreKeeper(store, FlowStore(max_size=1), reserve=0)
    await keeper.keep()
    for hour in range(6):
        await store.run(
            f"INSERT INTO flows (timeInserted, sourcePodName) SELECT now() - {hour * 3600}, randomPrintableASCII(40) "
            "FROM numbers(10000)"
        )
    with caplog.at_level("WARNING"):
        await keeper.keep()
    assert "Removed the oldest flow records" in caplog.text
    assert keeper.byte_count <= 1_000_000
    assert keeper.removed + keeper.rows == 60_000
    assert 0 < keeper.rows == await count(store)
    assert await count(store, "timeInserted >= now() - 1800") == 10_000
    await store.close()


@pytest.mark.parametrize("after", [1, 4, 9])
async def test_what_was_inserted_is_there_after_kill_9(tmp_path: Path, after: int) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path / "store")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as working:  # noqa: ASYNC220
        assert working.stdout
        told = [int(working.stdout.readline()) for _ in range(after)]
        working.send_signal(signal.SIGKILL)
        told += [int(line) for line in working.stdout]
    store = EmbeddedClickHouse(tmp_path / "store")
    found = await count(store)
    await store.close()
    assert found in (told[-1], told[-1] + 5000)


async def test_a_second_process_is_refused_and_waits_for_the_first(tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path / "store")]
    store = EmbeddedClickHouse(tmp_path / "store")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as working:  # noqa: ASYNC220
        assert working.stdout
        working.stdout.readline()
        with pytest.raises(Unavailable, match="another process has the lock"):
            await store.run("SELECT 1")
        working.kill()
    async with asyncio.timeout(TIMEOUT):
        while True:
            with contextlib.suppress(Unavailable):
                assert await count(store) >= 5000
                break
            await asyncio.sleep(0.1)
    await store.close()


def test_what_a_full_disk_costs_is_counted() -> None:
    """Of 64 MB, in a mount of its own: nothing is lost that no number names, and the store goes on."""
    script = f"mount -t tmpfs -o size=64m none /mnt && exec {sys.executable} -c '{FULL}'"
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    trouble, counted = done.stdout.splitlines()[-2:]
    assert "enough free space" in trouble
    assert counted == "counted"


async def test_a_query_that_takes_too_long_is_ended_and_delays_no_insert(tmp_path: Path) -> None:
    store = EmbeddedClickHouse(tmp_path / "store")
    output = ClickHouseOutput(store, "168h")
    await output.write(PEOPLE)
    endless = asyncio.create_task(
        store.run(
            "SELECT sleepEachRow(1) FROM numbers(100) SETTINGS max_execution_time = 5, max_block_size = 1"
        )
    )
    for _ in range(5):
        await output.write(PEOPLE)
    assert not endless.done()
    with pytest.raises(Unavailable, match="Timeout"):
        await endless
    # nothing of the other answer is in this one
    assert await count(store) == 6 * len(PEOPLE)
    await store.close()


async def test_code_and_constants_of_the_engine_are_mapped_while_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is needed again is there. Other threads of the engine read some of it again at once."""
    monkeypatch.setattr(embedded, "RELEASE_SECONDS", 1e9)
    store = EmbeddedClickHouse(tmp_path / "store")
    try:
        output = ClickHouseOutput(store, "168h")
        await output.write(PEOPLE)
        for name in QUERIES:
            await answer(store, name, {}, None)
        before = {mode: mapped(mode) for mode in ("r--p", "r-xp")}
        monkeypatch.setattr(embedded, "RELEASE_SECONDS", 0.0)
        await output.write(PEOPLE)
        for mode, octets in before.items():
            assert octets > 8e6
            assert mapped(mode) < 0.9 * octets, (mode, octets, mapped(mode))
        assert await count(store) == 2 * len(PEOPLE)
    finally:
        await store.close()


def mapped(mode: str) -> float:
    """Octets of the engine's pages of this mode in memory, but for those that were relocated."""
    found, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.endswith(LIBRARY):
            counts = line.split()[1] == mode
        elif not line.split()[0].endswith(":"):
            counts = False
        elif counts and line.startswith(("Shared_Clean:", "Private_Clean:")):
            found += 1024 * int(line.split()[1])
    return found


async def test_a_hundred_thousand_pods_are_stored_and_every_answer_is_bounded(store: Store) -> None:
    """Each with a connection of its own, in 1,000 Namespaces."""
    count, batch = 100_000, 10_000
    output = ClickHouseOutput(store, "168h")
    for first in range(0, count, batch):
        await output.write([
            FlowRecord(
                source_ip=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", destination_ip="10.96.0.1", protocol_identifier=6,
                source_pod_name=f"web{number}", source_pod_namespace=f"team-{number % 1000}", octet_delta_count=number,
                destination_transport_port=80, ingress_network_policy_name=f"p{number}", ingress_network_policy_type=2,
                ingress_network_policy_rule_action=1, egress_name=f"e{number}",
            )
            for number in range(first, first + batch)
        ])  # fmt: skip
    for name, asked, key, most in (
        ("flows", {"limit": "1000"}, "rows", 1000), ("map", {"by": "workload"}, "links", 2000), ("policies", {"step": "1h"}, "policies", 20_000),
        *(("top", {"by": by, "limit": "1000"}, "rows", 1000) for by in ("source", "policy", "egress", "egress-source", "namespace")),
    ):  # fmt: skip
        found = await answer(store, name, asked, None)
        truncated = asked.get("by") != "namespace"
        assert (len(found[key]), found["truncated"]) == (most, truncated), (name, asked)
    [row] = (await answer(store, "flows", {"pod": "team-999/web99999"}, ["team-999"]))["rows"]
    assert (row["octetDeltaCount"], row["egressName"]) == (99_999, "e99999")


async def test_text_that_is_no_utf8_of_somebody_elses_row_spoils_no_answer(store: Store) -> None:
    await store.run(created(DAY))
    await store.run("INSERT INTO flows (sourcePodName) SELECT unhex('ff3c')")
    [row] = (await answer(store, "flows", {}, None))["rows"]
    assert row["sourcePodName"] == "\ufffd<"
    assert json.dumps(row)
