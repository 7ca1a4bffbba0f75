"""The aggregator with its own store: records are found again after kill -9, and by queries of every kind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_engine import engine_folder
from test_flow_aggregator_process import halves, running, sent, until

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(engine_folder()), *sys.path)))


def ask(folder: Path, *questions: tuple[str, dict[str, str], list[str] | None]) -> list[Any]:
    words = [sys.executable, "-c", ASK, str(folder), json.dumps(questions)]
    found: list[Any] = json.loads(subprocess.check_output(words, text=True, timeout=60))
    return found


async def test_records_are_there_after_kill_9_and_a_second_run_adds_to_them(tmp_path: Path) -> None:
    store = {"enable": True, "directory": str(tmp_path / "store"), "commitInterval": "1s"}
    for run in (1, 2):
        async with running(tmp_path, store=store) as aggregator:
            for node, record in zip(("n1", "n2"), halves(), strict=True):
                await (await sent(aggregator.port, node, "tcp", record)).close()
            await until(lambda: aggregator.get("/recordmetrics")["numRecordsExported"], "it is stored")
            if run == 1:
                aggregator.process.send_signal(signal.SIGKILL)
                await aggregator.process.wait()
    asked = (None, ["shop"], ["other"])
    every, own, others = ask(tmp_path / "store", *(("flows", {}, who) for who in asked))
    assert [(row["sourcePodName"], row["destinationPodName"]) for row in every["rows"]] == [("web", "db")] * 2
    assert own == every
    assert others == {"rows": [], "truncated": False}
