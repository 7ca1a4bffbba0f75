"""What do 10,000 records a second cost the flow aggregator with its own store, and do queries answer meanwhile?

`python -m benchmarks.flows [RATE] [SECONDS] [CONNECTIONS]`: the aggregator as a process, in mode Aggregate, and an agent that sends
RATE (10,000) records a second over TCP for SECONDS (300), of CONNECTIONS (50,000) that go on, each in its turn. They are of
connections within a Node, so that each record is complete, and `activeFlowRecordTimeout` is such that each record that comes is one
that is stored. Meanwhile one client asks the four queries over the last hour in turn, with half a second between two. In the end the
process is terminated, and the records in the store are counted. The engine is what requirements/flow-store.txt locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figure import show

from antrea.apis.flow import FlowRecord
from antrea.ipfix.message import MessageWriter
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse
from antrea.outside.ipfix.exporter import CollectorSession
from image_build import cache

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements/flow-store.txt"
SLICE = 0.1
"""Seconds between two sends."""
CORES, MEGABYTES, QUERY_SECONDS = 1.0, 400.0, 1.0
"""Targets."""
QUERIES = (
    "flows?limit=1000", "flows?pod=shop-3/web-7&action=denied", "flows/map?by=workload", "flows/top?by=source",
    "flows/policies?step=1m",
)  # fmt: skip
TICKS = os.sysconf("SC_CLK_TCK")


def engine() -> Path:
    """Folder of the engine's package, kept in the cache."""

    def install(part: Path) -> None:
        words = ("install", "-q", "--no-deps", "--require-hashes", "-r", str(LOCK), "--target", str(part))
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)

    return cache.made("flow-store", cache.digest(LOCK), install)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def connections(count: int) -> list[FlowRecord]:
    """Of 500 Pods in 20 Namespaces to 50 servers, one in ten dropped."""
    begun = int(time.time())
    return [
        FlowRecord(
            flow_start_seconds=begun, flow_end_seconds=begun, flow_end_reason=2, flow_type=1, protocol_identifier=6,
            source_ip=f"10.10.{number % 500 // 250}.{number % 250 + 2}", destination_ip=f"10.10.9.{number % 50 + 2}",
            source_transport_port=1024 + number // 500, destination_transport_port=8080 + number % 3,
            source_pod_name=f"web-{number % 500}", source_pod_namespace=f"shop-{number % 20}", source_node_name="node-1",
            destination_pod_name=f"db-{number % 50}", destination_pod_namespace=f"data-{number % 5}",
            destination_node_name="node-1", destination_service_port_name=f"data-{number % 5}/db:sql",
            ingress_network_policy_name=f"policy-{number % 30}", ingress_network_policy_namespace=f"data-{number % 5}",
            ingress_network_policy_type=2, ingress_network_policy_rule_action=2 if number % 10 == 0 else 1,
            tcp_state="ESTABLISHED",
        )
        for number in range(count)
    ]  # fmt: skip


async def send(port: int, rate: int, seconds: float, flows: list[FlowRecord]) -> int:
    """So many a second; one that is late is sent at once. Returns how many."""
    session = CollectorSession(MessageWriter(1))
    await session.open("127.0.0.1", port, "tcp")
    begun, sent, most = time.monotonic(), 0, int(rate * SLICE)
    while sent < rate * seconds:
        now = int(time.time())
        some = [flows[(sent + number) % len(flows)] for number in range(most)]
        for one in some:
            one.flow_end_seconds = now
            one.octet_total_count += 1500
            one.octet_delta_count = 1500
            one.packet_total_count += 1
            one.packet_delta_count = 1
        sent += await session.export(some)
        await asyncio.sleep(max(begun + sent / rate - time.monotonic(), 0))
    await session.close()
    print(f"sent {sent} in {time.monotonic() - begun:.1f} s", file=sys.stderr)
    return sent


class Aggregator:
    """The program, what it costs, and what it answers."""

    def __init__(self, folder: Path, seconds: str) -> None:
        self.folder, self.port, self.api = folder, free_port(), free_port()
        config = {
            "aggregatorTransportProtocol": "tcp", "collectorPort": self.port, "grpcCollector": {"enable": False}, "apiServer": {"apiPort": self.api},
            "activeFlowRecordTimeout": seconds, "recordBufferSize": 32768,
            "store": {"enable": True, "directory": str(folder / "store")},
        }  # fmt: skip
        (folder / "conf").write_text(json.dumps(config))
        words = [sys.executable, "-P", "-m", "antrea.flow_aggregator.main", "--config", str(folder / "conf")]
        environ = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{engine()}"}
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [*words, "--token-file", str(folder / "token")], stderr=log, env=environ, cwd=ROOT
            )

    def ready(self) -> None:
        deadline = time.monotonic() + 60
        while "Taking flow records" not in (self.folder / "log").read_text():
            if time.monotonic() > deadline or self._process.poll() is not None:
                sys.exit((self.folder / "log").read_text())
            time.sleep(0.05)

    def ask(self, path: str) -> bytes:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        token = {"Authorization": f"Bearer {(self.folder / 'token').read_text()}"}
        asked = urllib.request.Request(f"https://127.0.0.1:{self.api}/{path}", headers=token)
        with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
            return bytes(answer.read())

    @property
    def processor(self) -> float:
        """Seconds so far, of all threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self, key: str) -> float:
        """Megabytes."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024 / 1e6
        raise KeyError(key)

    def end(self) -> None:
        self._process.terminate()
        if self._process.wait(60):
            sys.exit((self.folder / "log").read_text())


class Watching:
    """What is asked and looked at while records come."""

    def __init__(self, aggregator: Aggregator) -> None:
        self._aggregator = aggregator
        self._over = threading.Event()
        self.queries: dict[str, list[float]] = {path: [] for path in QUERIES}
        self.memory: list[float] = []
        self.anonymous: list[float] = []
        self.failed: list[str] = []
        """Why queries were not answered."""
        self._thread = threading.Thread(target=self._watch)

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def _watch(self) -> None:
        while True:
            for path, times in self.queries.items():
                begun = time.monotonic()
                try:
                    self._aggregator.ask(path)
                except OSError as error:
                    body = error.read().decode() if isinstance(error, urllib.error.HTTPError) else ""
                    self.failed.append(f"{path}: {error} {body}")
                times.append(time.monotonic() - begun)
                self.memory.append(self._aggregator.memory("VmRSS"))
                self.anonymous.append(self._aggregator.memory("RssAnon"))
                if self._over.wait(0.5):
                    return


async def stored(folder: Path) -> int:
    sys.path.append(str(engine()))
    store = EmbeddedClickHouse(folder / "store")
    found = int(await store.run("SELECT count() FROM flows"))
    await store.close()
    return found


def main(rate: int, seconds: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        aggregator = Aggregator(Path(place), f"{max(count // rate - 1, 1)}s")
        aggregator.ready()
        print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
        words = (
            sys.executable,
            "-m",
            "benchmarks.flows",
            "send",
            str(aggregator.port),
            str(rate),
            str(seconds),
            str(count),
        )
        watching, begun, before = Watching(aggregator), time.monotonic(), aggregator.processor
        with watching.going_on():
            sent = int(subprocess.check_output(words, cwd=ROOT))
        elapsed, used = time.monotonic() - begun, aggregator.processor - before
        time.sleep(count / rate + 5)
        metrics: dict[str, Any] = json.loads(aggregator.ask("recordmetrics"))
        size = sum(one.stat().st_size for one in Path(place, "store").rglob("*") if one.is_file())
        aggregator.end()
        found = asyncio.run(stored(Path(place)))
    times = sorted(one for each in watching.queries.values() for one in each)
    show("flows_rate", "records/s", [sent / elapsed])
    show("flows_processor", "cores", [used / elapsed], target=CORES)
    show("flows_memory", "MB", watching.memory, target=MEGABYTES)
    show("flows_memory_anonymous", "MB", watching.anonymous)
    show("flows_memory_most", "MB", [max(watching.memory)], target=MEGABYTES)
    show("flows_not_received", "records", [sent - metrics["numRecordsReceived"]], target=0)
    show("flows_dropped", "records", [metrics["numRecordsDropped"]], target=0)
    show("flows_stored", "records", [found])
    show("flows_exported_and_not_stored", "records", [metrics["numRecordsExported"] - found], target=0)
    show("flows_disk", "bytes/record", [size / found])
    for why in watching.failed:
        print(why, file=sys.stderr)
    show("flows_queries_not_answered", "queries", [len(watching.failed)], target=0)
    for path, own in watching.queries.items():
        show(f"flows_query /{path}", "ms", [1000 * one for one in own])
    show(
        "flows_query_p99", "ms", [1000 * statistics.quantiles(times, n=100)[98]], target=1000 * QUERY_SECONDS
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        port, rate, seconds, count = map(int, sys.argv[2:])
        print(asyncio.run(send(port, rate, seconds, connections(count))))
    else:
        numbers = [int(word) for word in sys.argv[1:]]
        main(*(numbers + [10_000, 300, 50_000][len(numbers) :]))
