"""The aggregator with its own store: records are found again after kill -9, and by queries of every kind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_engine import engine_folder
from test_flow_aggregator_process import halves, running, sent, until

if TYPE_CHECKING:
    from pathlib import Path

    from test_flow_aggregator_process import Running

ASK = """
import asyncio, json, sys
from pathlib import Path
from antrea.flow_aggregator.query import answer
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

async def main():
    store = EmbeddedClickHouse(Path(sys.argv[1]))
    print(json.dumps([await answer(store, name, values, names) for name, values, names in json.loads(sys.argv[2])]))
    await store.close()

asyncio.run(main())
"""

WRITE = """
import asyncio, sys
from pathlib import Path
import msgspec
from antrea.apis.flow import FlowRecord
from antrea.flow_aggregator.clickhouse_output import ClickHouseOutput
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

async def main():
    store = EmbeddedClickHouse(Path(sys.argv[1]))
    await ClickHouseOutput(store, "24h").write(msgspec.json.decode(sys.argv[2], type=list[FlowRecord]))
    print((await store.run("SELECT getSetting('max_threads') FORMAT TabSeparated")).decode())
    await store.close()

asyncio.run(main())
"""

ENDED = """
import asyncio, sys
from pathlib import Path
from antrea.errors import Unavailable
from antrea.flow_aggregator.query import answer
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

class Endless(EmbeddedClickHouse):
    def __init__(self, statement):
        super().__init__(Path(sys.argv[1]))
        self.statement = statement

    async def run(self, sql, parameters=None):
        return await super().run(f"{self.statement} FORMAT JSONCompactEachRow")

async def main():
    for statement in sys.argv[2:]:
        store = Endless(statement)
        try:
            await answer(store, "flows", {}, None)
        except Unavailable as why:
            print(why)
        await store.close()

asyncio.run(main())
"""

RESIDENT = """
import asyncio, sys
from pathlib import Path
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse

async def main():
    store = EmbeddedClickHouse(Path(sys.argv[1]))
    await store.run("SELECT 1 FORMAT TabSeparated")
    print(Path("/proc/self/status").read_text())
    await store.close()

asyncio.run(main())
"""


RELEASED = """
import asyncio, sys
from pathlib import Path
from antrea.outside.clickhouse import embedded

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssFile")).split()[1]) // 1000

async def main():
    store = embedded.EmbeddedClickHouse(Path(sys.argv[1]))
    await store.run("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
    for seconds in (10.0, 0.0):
        embedded.RELEASE_SECONDS = seconds
        await store.insert("t", {"a": "UInt8"}, b"[1]")
        print(resident())
    print((await store.run("SELECT count() FROM t FORMAT TabSeparated")).decode())
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(engine_folder()), *sys.path)))


def ask(folder: Path, *questions: tuple[str, dict[str, str], list[str] | None]) -> list[Any]:
    words = [sys.executable, "-c", ASK, str(folder), json.dumps(questions)]
    found: list[Any] = json.loads(subprocess.check_output(words, text=True, timeout=60))
    return found


def antctl(aggregator: Running, *words: str) -> subprocess.CompletedProcess[str]:
    where = ("--server", f"127.0.0.1:{aggregator.api}", "--token-file", str(aggregator.folder / "token"))
    command = [sys.executable, "-P", "-m", "antrea.antctl.main", *where, "get", "flows", *words]
    pod = os.environ | {"POD_NAME": "flow-aggregator-7d"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=pod)


def check_answers(aggregator: Running) -> None:
    """Of the API, and of antctl in the Pod."""
    [link] = aggregator.get("/flows/map?by=workload")["links"]
    assert (link["source"], link["target"], link["port"]) == ("workload/shop/web", "workload/shop/db", 80)
    assert aggregator.get("/flows/top?by=egress") == {"rows": [], "truncated": False}
    assert aggregator.get("/flows/policies?step=1h")["policies"] == []
    with pytest.raises(urllib.error.HTTPError) as refused:
        aggregator.get("/flows?port=http")
    assert refused.value.code == 400
    assert "port: 'http' is not a number" in refused.value.read().decode()
    done = antctl(aggregator, "--pod", "shop/web", "--since", "10m")
    assert (done.returncode, done.stderr) == (0, "")
    header, *lines = done.stdout.splitlines()
    assert header.split()[:5] == ["LAST-PACKET", "SOURCE", "DESTINATION", "PORT", "PROTO"]
    assert [line.split()[1:5] for line in lines] == [["shop/web", "shop/db", "80", "TCP"]] * 2
    [row] = aggregator.get("/destinations")
    assert (row["name"], row["trouble"], row["exported"], row["dropped"]) == ("store", "", 1, 0)
    assert len(json.loads(antctl(aggregator, "-o", "json").stdout)["rows"]) == 2
    assert "older records" in antctl(aggregator, "--limit", "1").stderr
    assert "since: 'x' is not a duration" in antctl(aggregator, "--since", "x").stderr


def test_code_that_only_the_start_of_the_engine_needs_is_not_resident(tmp_path: Path) -> None:
    """Megabytes: 190 if it were."""
    words = [sys.executable, "-c", RESIDENT, str(tmp_path / "store")]
    status = subprocess.check_output(words, text=True, timeout=60)
    found = next(line for line in status.splitlines() if line.startswith("RssFile"))
    assert int(found.split()[1]) * 1024 / 1e6 < 120


def test_the_map_and_policies_are_summed_by_their_ends(tmp_path: Path) -> None:
    web = {"sourcePodNamespace": "shop", "sourcePodName": "web-7f5c9d6b8-x2x4z", "sourceIP": "10.0.0.1"}
    db = {"destinationPodNamespace": "data", "destinationPodName": "db-0", "destinationIP": "10.0.0.2"}
    service = {
        "destinationServicePortName": "data/db:sql",
        "octetDeltaCount": 100,
        "destinationTransportPort": 5432,
    }
    outside = {"destinationIP": "192.0.2.9", "octetDeltaCount": 10, "destinationTransportPort": 443}
    out = {
        "egressNetworkPolicyName": "out",
        "egressNetworkPolicyNamespace": "shop",
        "egressNetworkPolicyType": 2,
    }
    isolated = {"ingressNetworkPolicyType": 1, "ingressNetworkPolicyRuleAction": 2}
    records = [
        {**web, **db, **service, **out, "egressNetworkPolicyRuleAction": 1, "sourceTransportPort": 1},
        {
            **web,
            **db,
            **service,
            **out,
            "egressNetworkPolicyRuleAction": 3,
            **isolated,
            "sourceTransportPort": 2,
        },
        {**web, **outside},
    ]
    words = [sys.executable, "-c", WRITE, str(tmp_path / "store"), json.dumps(records)]
    assert subprocess.check_output(words, text=True, timeout=60).split() == ["1"]
    asked = [("map", {"by": by}, None) for by in ("namespace", "workload", "service", "endpoint")]
    *maps, top, seen = ask(
        tmp_path / "store", *asked, ("top", {"by": "policy"}, None), ("policies", {"step": "1h"}, None)
    )
    assert [[(one["source"], one["target"], one["bytes"]) for one in found["links"]] for found in maps] == [
        [("namespace/shop", "namespace/data", 200), ("namespace/shop", "external", 10)],
        [("workload/shop/web", "workload/data/db", 200), ("workload/shop/web", "external", 10)],
        [("workload/shop/web", "service/data/data/db:sql", 200), ("workload/shop/web", "external", 10)],
        [("workload/shop/web", "workload/data/db", 200), ("workload/shop/web", "address/192.0.2.9", 10)],
    ]
    assert [(one["connections"], one["denied"]) for one in maps[0]["links"]] == [(2, 1), (1, 0)]
    kept = ("direction", "type", "namespace", "name")
    assert [tuple(row.values()) for row in top["rows"]] == [
        ("egress", 2, "shop", "out", 200, 2, 1), ("ingress", 1, "", "", 100, 1, 1),
    ]  # fmt: skip
    verdicts = [
        (*(one[key] for key in kept), *[(at["allowed"], at["dropped"]) for at in one["points"]])
        for one in seen["policies"]
    ]
    assert verdicts == [("egress", 2, "shop", "out", (1, 1)), ("ingress", 1, "", "", (0, 1))]


def written(folder: Path, records: list[dict[str, Any]]) -> None:
    words = [sys.executable, "-c", WRITE, str(folder), json.dumps(records)]
    assert subprocess.check_output(words, text=True, timeout=60).split()


def test_links_count_connections_whose_direction_is_unknown(tmp_path: Path) -> None:
    ends = {
        "sourcePodNamespace": "shop",
        "sourcePodName": "feed",
        "destinationPodNamespace": "shop",
        "destinationPodName": "reader",
    }
    unknown, denied = {"biflowDirection": 0}, {"ingressNetworkPolicyRuleAction": 2}
    records = [
        {**ends, **more, "destinationTransportPort": port, "sourceTransportPort": number, "octetDeltaCount": 90 - port}
        for port, every in enumerate(([unknown], [unknown, {}], [{}, denied | unknown], [unknown, denied], [denied | unknown]))
        for number, more in enumerate(every)
    ]  # fmt: skip
    written(tmp_path / "store", records)
    seen, rows = ask(tmp_path / "store", ("map", {"by": "endpoint"}, None), ("flows", {}, None))
    counts = {one["port"]: (one["connections"], one["denied"], one["unknown"]) for one in seen["links"]}
    assert counts == {0: (1, 0, 1), 1: (2, 0, 1), 2: (2, 1, 0), 3: (2, 1, 1), 4: (1, 1, 0)}
    assert sorted({one["biflowDirection"] for one in rows["rows"]}) == [0, 1]


def at(moment: int, **more: Any) -> dict[str, Any]:
    """A record of a denied connection that began an hour before its last packet."""
    denied = {
        "ingressNetworkPolicyType": 2,
        "ingressNetworkPolicyName": "in",
        "ingressNetworkPolicyRuleAction": 2,
    }
    ends = {"sourceIP": "10.0.0.1", "destinationIP": "10.0.0.2", "destinationTransportPort": 80}
    return {
        **denied,
        **ends,
        "flowStartSeconds": moment - 3600,
        "flowEndSeconds": moment,
        "octetDeltaCount": 1,
    } | more


def pass_second() -> None:
    """Wait until records that are written have another second of timeInserted, which is a step."""
    before = int(time.time())
    while int(time.time()) == before:
        time.sleep(0.01)


def test_a_connection_counts_once_for_a_policy_however_many_steps_it_has_records_in(tmp_path: Path) -> None:
    """As in the answer of `top`; a record has a time of its own, which is that of another step."""
    folder, now = tmp_path / "store", int(time.time())
    later = at(now, sourceTransportPort=2, flowStartSeconds=now - 100)
    for records in ([at(now), later], [at(now), at(now)], [later]):
        written(folder, records)
        pass_second()
    asked = [
        ("policies", {"step": step, "since": since}, None) for step, since in (("1s", "15m"), ("1m", "3h"))
    ]
    *answers, top = ask(folder, *asked, ("top", {"by": "policy"}, None))
    points = [[point for one in found["policies"] for point in one["points"]] for found in answers]
    assert [sum(one["dropped"] for one in found) for found in points] == [2, 2]
    assert [(row["connections"], row["denied"]) for row in top["rows"]] == [(2, 2)]
    [[first, second], [older, newer]] = points
    # it began before: the first step, of 15 minutes before the question
    assert now - 900 <= first["time"] <= time.time() - 900
    assert second["time"] == now - 100
    assert (older["time"], newer["time"]) == ((now - 3600) // 60 * 60, (now - 100) // 60 * 60)


def test_the_newest_records_are_those_with_the_latest_packet(tmp_path: Path) -> None:
    """One that comes late, after those of later packets, stands where its time is, and is the first that is cut off."""
    folder, now = tmp_path / "store", int(time.time())
    written(folder, [at(now - 10, sourceTransportPort=1), at(now - 30, sourceTransportPort=2)])
    pass_second()
    written(folder, [at(now - 40, sourceTransportPort=3), at(now - 20, sourceTransportPort=4)])
    whole, three, none = ask(
        folder, ("flows", {}, None), ("flows", {"limit": "3"}, None), ("flows", {"namespace": "other"}, None)
    )
    assert [row["sourceTransportPort"] for row in whole["rows"]] == [1, 4, 2, 3]
    assert [row["sourceTransportPort"] for row in three["rows"]] == [1, 4, 2]
    assert [one["truncated"] for one in (whole, three)] == [False, True]
    assert none["rows"] == []


QUESTIONS = [
    ("flows", {}),
    ("policies", {"step": "1h"}),
    *(("map", {"by": by}) for by in ("namespace", "workload", "service", "endpoint")),
    *(
        ("top", {"by": by})
        for by in ("source", "destination", "policy", "egress", "egress-source", "namespace")
    ),
]


def test_no_answer_for_one_namespace_has_anything_of_another(tmp_path: Path) -> None:
    """Of connections between all pairs of a Namespace that is seen, one that is not, and outside of the cluster."""
    records = [
        {
            "sourcePodNamespace": source, "sourcePodName": source and f"{source}-web", "sourceNodeName": f"{source}-node",
            "destinationPodNamespace": target, "destinationPodName": target and f"{target}-db", "sourceIP": f"{source}.ip",
            "destinationIP": f"{target}.ip", "destinationServicePortName": target and f"{target}/db:sql", "octetDeltaCount": 7,
            "ingressNetworkPolicyName": f"{target}-in", "ingressNetworkPolicyNamespace": target, "ingressNetworkPolicyType": 2,
            "egressNetworkPolicyName": f"{source}-out", "egressNetworkPolicyNamespace": source, "egressNetworkPolicyType": 2,
            "egressName": f"{source}-egress", "egressIP": f"{source}.egress", "appProtocolName": "http", "httpVals": f"{source} {target}",
        }
        for source in ("shop", "secret", "") for target in ("shop", "secret", "") if source or target
    ]  # fmt: skip
    words = [sys.executable, "-c", WRITE, str(tmp_path / "store"), json.dumps(records)]
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    asked = [(name, values, who) for who in (None, ["shop"]) for name, values in QUESTIONS]
    found = [json.dumps(one) for one in ask(tmp_path / "store", *asked)]
    every, own = found[: len(QUESTIONS)], found[len(QUESTIONS) :]
    assert [question for question, text in zip(QUESTIONS, every, strict=True) if "secret" not in text] == []
    assert [question for question, text in zip(QUESTIONS, own, strict=True) if "secret" in text] == []
    assert [question for question, text in zip(QUESTIONS, own, strict=True) if "shop" not in text] == []


def test_a_query_that_the_engine_ends_names_the_limit_and_what_to_ask(tmp_path: Path) -> None:
    slow = "SELECT sleepEachRow(0.2) FROM numbers(20) SETTINGS max_execution_time = 1, max_block_size = 1"
    large = "SELECT groupArray(number) FROM numbers(10000000) SETTINGS max_memory_usage = 1000000"
    words = [sys.executable, "-c", ENDED, str(tmp_path / "store"), slow, large]
    hint = "ask for less time (since), or for fewer (pod, namespace)"
    assert subprocess.check_output(words, text=True, timeout=60).splitlines() == [
        f"the query took more than 5 s: {hint}", f"the query took more than 256 MiB of memory: {hint}",
    ]  # fmt: skip


def test_code_that_was_not_needed_since_is_not_resident(tmp_path: Path) -> None:
    words = [sys.executable, "-c", RELEASED, str(tmp_path / "store")]
    before, after, count = map(int, subprocess.check_output(words, text=True, timeout=60).split())
    assert after < before - 20
    assert count == 2


async def test_without_a_store_a_query_names_the_key(tmp_path: Path) -> None:
    async with running(tmp_path) as aggregator:
        done = await asyncio.to_thread(antctl, aggregator)
    assert done.returncode == 1
    assert "set store.enable" in done.stderr


async def test_records_are_there_after_kill_9_and_a_second_run_adds_to_them(tmp_path: Path) -> None:
    store = {"enable": True, "directory": str(tmp_path / "store"), "commitInterval": "1s"}
    for run in (1, 2):
        async with running(tmp_path, store=store) as aggregator:
            for node, record in zip(("n1", "n2"), halves(), strict=True):
                await (await sent(aggregator.port, node, "tcp", record)).close()
            await until(lambda: aggregator.get("/recordmetrics")["numRecordsExported"], "it is stored")
            if run == 2:
                await asyncio.to_thread(check_answers, aggregator)
            if run == 1:
                aggregator.process.send_signal(signal.SIGKILL)
                await aggregator.process.wait()
    asked = (None, ["shop"], ["other"])
    every, own, others = ask(tmp_path / "store", *(("flows", {}, who) for who in asked))
    assert [(row["sourcePodName"], row["destinationPodName"]) for row in every["rows"]] == [("web", "db")] * 2
    assert own == every
    assert others == {"rows": [], "truncated": False}
