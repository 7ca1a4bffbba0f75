"""What does our client take to list 100,000 Pods, hold them, and follow 1,000 changes?

`python -m benchmarks.kube_watch [PODS]`: a process with the feed of one kind and an engine without units, which reads
what the controller will read of a Pod, against the server of `kube_watch_server`. CPU is all that the process uses from
the first request until every change has come; memory is the most that it ever held. Loop lag is told twice: as
processor time in one go, and as time on the wall. The host of a virtual machine may stop all of it, often
without a word, and then that counts as processor time, too; so the longest is compared with how long two programs which
only read their clocks are stopped. All runs do the same work: what holds the loop in the best of them is ours.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from figure import Against, show

from antrea.apis.core import Pod
from antrea.engine import Engine, Facts
from antrea.facts.fact import Fact
from antrea.outside.kube.access import Access
from antrea.outside.kube.client import Kube
from antrea.outside.kube.resource_feed import ResourceFeed

PODS, CHANGES, TIMES = 100_000, 1_000, 3
BEAT = 0.001
"""Seconds between two looks at how late the loop is."""
CPU_TARGET, LAG_TARGET, MEMORY_TARGET = 5.0, 20.0, 350.0


class HeldPod(Fact, frozen=True):
    """What selectors, groups and rules ask of a Pod."""

    namespace: str
    name: str
    labels: dict[str, str]
    node: str
    ips: tuple[str, ...]
    version: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def row(pod: Pod) -> HeldPod:
    meta, ips = pod.metadata, tuple(address.ip for address in pod.status.pod_ips)
    return HeldPod(
        meta.namespace, meta.name, meta.labels, pod.spec.node_name, ips, int(meta.resource_version)
    )


async def lateness(late: list[float], held: list[float]) -> None:
    """Milliseconds by which each beat came too late, and of processor time that others of the loop took, until cancelled."""
    while True:
        began, used = time.perf_counter(), time.thread_time()
        await asyncio.sleep(BEAT)
        late.append((time.perf_counter() - began - BEAT) * 1e3)
        held.append((time.thread_time() - used) * 1e3)


async def client(port: int, ca: str, count: int) -> dict[str, Any]:
    """The figures of one run."""
    facts, late, held = Facts(), list[float](), list[float]()
    engine = Engine(facts, (), {})
    access = Access(f"https://127.0.0.1:{port}", ca_pem=ca)
    async with Kube(access) as kube:
        feed = ResourceFeed(kube, "/api/v1/pods", Pod, rows={HeldPod: row})
        idle, began, used = memory("VmRSS"), time.monotonic(), time.process_time()
        tasks = [asyncio.create_task(part) for part in (engine.run(), lateness(late, held), feed.run(facts))]
        while HeldPod not in facts.feeds.synced:  # noqa: ASYNC110 (as a program that polls would see it)
            await asyncio.sleep(0.01)
        listed, taken = time.monotonic() - began, time.process_time() - used
        while not changed(facts, count):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(facts.table(HeldPod).rows) == count
    return {
        "list_wall": [listed],
        "list_cpu": [taken],
        "cpu": [time.process_time() - used],
        "late": late,
        "held": held,
        "grown": [memory("VmRSS") - idle],
        "most": [memory("VmHWM")],
    }


def changed(facts: Facts, count: int) -> bool:
    """Whether the last change has come, and all before it."""
    number = (CHANGES - 1) * 7 % count
    app = number // 20
    found = facts.get(HeldPod, f"team-{app % 200}/app-{app}-6c55dfc758-{number:05x}")
    return isinstance(found, HeldPod) and found.version == 1_000_000 + CHANGES


def memory(name: str) -> float:
    """MiB of this process. Source: proc_pid_status(5)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def stopped(seconds: float) -> float:
    """The most milliseconds between two looks at the clock by who does nothing else."""
    before = time.perf_counter()
    end, most = before + seconds, 0.0
    while before < end:
        now = time.perf_counter()
        most, before = max(most, now - before), now
    return most * 1e3


def machine_stopped(seconds: float) -> float:
    """The same of two processes, which keep both processors as busy as server and client do."""
    words = [sys.executable, "-m", "benchmarks.kube_watch", "clock", str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        mine, theirs = stopped(seconds), other.communicate()[0]
    return max(mine, float(theirs))


def measured(count: int) -> dict[str, Any]:
    """One run, each side in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.kube_watch_server", str(count), str(CHANGES)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline().decode()
            words = [sys.executable, "-m", "benchmarks.kube_watch", "client", said, str(count)]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        finally:
            server.kill()
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "stopped": [machine_stopped(found["list_wall"][0])]}


def main(count: int) -> None:
    found = [measured(count) for _ in range(TIMES)]

    def figures(name: str) -> list[float]:
        return [run[name][0] for run in found]

    show(f"kube_watch_{count}_pods_list_wall", "s", figures("list_wall"))
    show(f"kube_watch_{count}_pods_list_cpu", "s", figures("list_cpu"))
    show(f"kube_watch_{count}_pods_cpu", "s", figures("cpu"), target=CPU_TARGET)
    machine = Against("kube_watch_clock_readers_stopped_max", tuple(figures("stopped")))
    for name, told in (("held", "loop_held"), ("late", "loop_lag")):
        p99 = [statistics.quantiles(run[name], n=100)[98] for run in found]
        show(f"kube_watch_{count}_pods_{told}_p99", "ms", p99, target=LAG_TARGET)
        most = [max(run[name]) for run in found]
        show(f"kube_watch_{count}_pods_{told}_max", "ms", most, against=machine, target=LAG_TARGET)
        show(f"kube_watch_{count}_pods_{told}_max_of_best_run", "ms", [min(most)], target=LAG_TARGET)
    show(f"kube_watch_{count}_pods_rss_growth", "MiB", figures("grown"))
    show(f"kube_watch_{count}_pods_rss_most", "MiB", figures("most"), target=MEMORY_TARGET)


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        at = json.loads(sys.argv[2])
        print(json.dumps(asyncio.run(client(at["port"], at["ca"], int(sys.argv[3])))))
    elif sys.argv[1:2] == ["clock"]:
        print(stopped(float(sys.argv[2])))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else PODS)
