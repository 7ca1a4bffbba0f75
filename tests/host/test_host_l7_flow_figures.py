"""What the export of requests costs a Pod and the others, in figures: `python -m benchmarks.l7_flow` prints them (docs/benchmarks.md)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from figure import Against, show
from test_host_l7_flow_export import annotate, engine_reads, world
from test_host_traffic_control import ADDRESSES, MACS, flows, ports

from antrea.features.l7_flow_export.agent import TAP

if TYPE_CHECKING:
    from conftest import Namespaces
    from test_host_l7_flow_export import World

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900), pytest.mark.usefixtures("suricata_root")]
ROUNDS = int(os.environ.get("L7_FLOW_ROUNDS", "5"))
REQUESTS = int(os.environ.get("L7_FLOW_REQUESTS", "3000"))
SERVER = """
import asyncio
class Serve(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        for head in data.split(b"\\r\\n\\r\\n")[:-1]:
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def main():
    server = await asyncio.get_running_loop().create_server(Serve, None, 8081)
    print("listening", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
ASK = """
import json, socket, sys, time
to, count = sys.argv[1], int(sys.argv[2])
with socket.create_connection((to, 8081), timeout=30) as peer:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for number in range(count):
        begin = time.perf_counter()
        peer.sendall(b"GET /public/%d HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % number)
        got = b""
        while not got.endswith(b"ok"):
            got += peer.recv(4096)
        times.append(time.perf_counter() - begin)
times.sort()
print(json.dumps([count / sum(times), times[int(count * 0.99)] * 1000]))
"""
"""Prints requests a second on one connection and their p99 in ms."""


async def asked(found: World, pod: str) -> list[float]:
    words = [
        "ip",
        "netns",
        "exec",
        found.pods[pod],
        sys.executable,
        "-c",
        ASK,
        ADDRESSES["b"][0],
        str(REQUESTS),
    ]
    done = await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, check=True, timeout=300
    )
    values: list[float] = json.loads(done.stdout)
    return values


def processor(pid: int) -> float:
    """Seconds that it has used. Source: proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


async def switched(found: World, *, on: bool) -> None:
    """Requests of Pod a are exported, or not any more."""
    annotate(found.agent.api, "a", "both" if on else "")
    if on:
        found.got.clear()
        await found.agent.until(lambda _: engine_reads(found, ADDRESSES["b"][0]), "the engine reads requests")
    else:
        await found.agent.until(lambda _: not flows(found.agent, "reg9"), "nothing is copied any more")
        await found.agent.until(lambda _: TAP not in ports(found.agent), "its port is gone")


async def test_requests_of_a_pod_that_asks_and_of_one_that_does_not(
    netns: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ADDRESSES, "c", ("10.10.1.13", "fd74::13"))
    monkeypatch.setitem(MACS, "c", "0a:00:00:00:00:13")
    rounds: dict[tuple[str, bool], list[list[float]]] = {}
    async with world(netns, tmp_path) as found:
        with netns.serving(found.pods["b"], SERVER):
            for on in [False, True] * ROUNDS:
                await switched(found, on=on)
                for pod in ("a", "c"):
                    engines = found.container.engines()
                    before = sum(map(processor, engines))
                    rounds.setdefault((pod, on), []).append(await asked(found, pod))
                    if on:
                        rounds[pod, on][-1].append((sum(map(processor, engines)) - before) / REQUESTS * 1e6)
    for pod, name in (("a", "asks"), ("c", "does_not_ask")):
        for number, (what, unit) in enumerate((("requests", "1/s"), ("request_p99", "ms"))):
            off, on_ = ([one[number] for one in rounds[pod, on]] for on in (False, True))
            show(f"l7_flow_{what}_of_a_pod_that_{name}", unit, on_, against=Against("off", tuple(off)))
        show(f"l7_flow_engine_of_a_pod_that_{name}", "us/request", [one[2] for one in rounds[pod, True]])
