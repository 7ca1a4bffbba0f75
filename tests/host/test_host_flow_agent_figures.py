"""What the export of records costs an agent, in figures: `python -m benchmarks.flow_agent` prints them (docs/benchmarks.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_process import agent_process
from figure import Against, show
from test_host_traffic_control import ADDRESSES, api, connected

from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_process import AgentProcess
    from conftest import Namespaces

    from antrea.apis.flow import FlowRecord

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]
CONNECTIONS = int(os.environ.get("FLOW_CONNECTIONS", "20000"))
RATE = int(os.environ.get("FLOW_RATE", "200"))
SECONDS = float(os.environ.get("FLOW_SECONDS", "60"))
PORTS = (8080, 8081)
"""Each of a process of its own, which may not have 20,000 descriptors."""
CORES, MEGABYTES, LAG = 0.1, 60.0, 20.0
SERVER = """
import asyncio
class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "0.0.0.0", PORT, backlog=4096)
    print("listening", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
CLIENT = """
import asyncio, sys, time
open("/proc/sys/net/ipv4/ip_local_port_range", "w").write("1024 65000")
to, count, rate, port = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
async def opened():
    reader, writer = await asyncio.open_connection(to, port)
    writer.write(b"x")
    await reader.readexactly(1)
    return writer
async def short():
    (await opened()).transport.abort() # closed for both at once
async def main():
    kept = []
    while len(kept) < count:
        kept += await asyncio.gather(*(opened() for _ in range(min(100, count - len(kept)))))
    print("connected", flush=True)
    begun, made, tasks = time.monotonic(), 0, set()
    while True:
        while made < (time.monotonic() - begun) * rate:
            task = asyncio.create_task(short())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            made += 1
        await asyncio.sleep(0.01)
asyncio.run(main())
"""
"""Keeps so many connections open, says so, and makes so many short ones a second."""
PROBE = """
import asyncio, os, threading
LOG = os.environ.get("LOOP_LAG_LOG", "")
if LOG:
    begin = asyncio.BaseEventLoop.run_forever
    def run_forever(self):
        if threading.current_thread() is not threading.main_thread():
            return begin(self)
        late = []
        def tick(due):
            on = os.path.exists(LOG + ".on")
            if on:
                late.append(self.time() - due)
            elif late:
                with open(LOG + ".new", "w") as log:
                    log.write("\\\\n".join(map(str, late)))
                os.replace(LOG + ".new", LOG)
                late.clear()
            due = self.time() + (0.005 if on else 1.0)
            self.call_at(due, tick, due)
        self.call_soon(tick, self.time())
        begin(self)
    asyncio.BaseEventLoop.run_forever = run_forever
""".replace("\\\\n", "\\n")
"""A sitecustomize for the agent: how late the loop of its main thread is, each 5 ms, while there is a file."""


def memory(pid: int) -> float:
    """MB that it holds. Source: proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3


def processor(pid: int) -> float:
    """Seconds that it and what it has waited for have used. Source: proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def agent_pid(agent: AgentProcess) -> int:
    assert agent.process is not None
    return agent.process.pid


async def cores(pid: int, seconds: float) -> float:
    begun, used = time.monotonic(), processor(pid)
    await asyncio.sleep(seconds)
    return (processor(pid) - used) / (time.monotonic() - begun)


def late(log: Path, seconds: float) -> list[float]:
    """Milliseconds that the loop was late, each time that it was looked at."""
    on = log.with_name(log.name + ".on")
    on.touch()
    time.sleep(seconds)
    on.unlink()
    deadline = time.monotonic() + 60
    while not log.exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(1)
    found = [float(line) * 1e3 for line in log.read_text().splitlines()]
    log.unlink()
    return found


def p99(found: list[float]) -> float:
    return statistics.quantiles(found, n=100)[98]


@contextlib.contextmanager
def loaded(netns: Namespaces, pods: dict[str, str]) -> Iterator[None]:
    """Connections of Pod a to Pod b."""
    with contextlib.ExitStack() as last:
        for port in PORTS:
            last.enter_context(netns.serving(pods["b"], SERVER.replace("PORT", str(port))))
        load = [str(count // len(PORTS)) for count in (CONNECTIONS, RATE)]
        words = ["ip", "netns", "exec", pods["a"], sys.executable, "-c", CLIENT, ADDRESSES["b"][0], *load]
        clients = [subprocess.Popen([*words, str(port)], stdout=subprocess.PIPE) for port in PORTS]
        for client in clients:
            last.enter_context(client)
            last.callback(client.kill)
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == b"connected\n"
        yield


def configure(tmp_path: Path, port: int) -> None:
    """The next agent exports to this port."""
    file = tmp_path / "antrea-agent.conf"
    exporter = {"enable": True, "flowCollectorAddr": f"127.0.0.1:{port}:tcp"}
    config = {
        **json.loads(file.read_text()),
        "featureGates": {"FlowExporter": True},
        "flowExporter": exporter,
    }
    file.write_text(json.dumps(config))


async def test_an_agent_with_many_connections_without_the_export_and_with_it(
    netns: Namespaces, tmp_path: Path
) -> None:
    got: list[FlowRecord] = []
    listening: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", listening.put_nowait))
    (tmp_path / "sitecustomize.py").write_text(PROBE)
    log = tmp_path / "late"
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    env = {**os.environ, "PYTHONPATH": path, "LOOP_LAG_LOG": str(log)}
    async with agent_process(netns, tmp_path, env, {}, api()) as agent:
        pods = await connected(netns, agent)
        with loaded(netns, pods):
            without = await cores(agent_pid(agent), SECONDS), memory(agent_pid(agent))
            before_lag = await asyncio.to_thread(late, log, SECONDS)
            await agent.kill()
            configure(tmp_path, await listening.get())
            await agent.start()
            await agent.until(lambda agent: agent.ready(), "the agent is ready", 180)
            await agent.until(
                lambda _: (
                    len({(one.source_transport_port, one.destination_transport_port) for one in got})
                    >= CONNECTIONS
                ),
                "records",
                300,
            )
            before, begun = len(got), time.monotonic()
            used = await cores(agent_pid(agent), SECONDS)
            rate = (len(got) - before) / (time.monotonic() - begun)
            tracked = agent.switch.appctl("dpctl/dump-conntrack").count("zone=65520")
            held, lag = memory(agent_pid(agent)), await asyncio.to_thread(late, log, SECONDS)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    show("flow_agent_processor", "cores", [used], against=Against("without", (without[0],)), target=CORES)
    show("flow_agent_memory_more", "MB", [held - without[1]], target=MEGABYTES)
    show("flow_agent_tracked", "connections", [tracked])
    show("flow_agent_records", "1/s", [rate])
    lags = Against("without", (p99(before_lag),))
    show("flow_agent_loop_late_p99", "ms", [p99(lag)], against=lags, target=LAG)
    show("flow_agent_loop_late_max", "ms", [max(lag)], against=Against("without", (max(before_lag),)))
    assert rate > RATE / 2
