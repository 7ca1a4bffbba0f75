"""How much memory does the agent program take: idle, with 110 Pods and 200 Nodes, and after 10,000 Pods came and went?

The real program against a real API server and Open vSwitch, see agent_node. Each Pod that comes and goes is an object
in the API, an ADD, a DEL, and then no object. An argument is another number of Pods than 10,000.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from figure import show

from benchmarks.agent_node import PODS, AgentNode, Memory, agent_node

STARTS = 5
COMINGS = 10_000
WIDTH = 10
SAMPLE = 250
WARM = 1_000
"""Comings after which memory is to stay as it is."""
IDLE_TARGET, FULL_TARGET, GROWTH_TARGET = 60, 90, 1


def main(comings: int) -> None:
    with agent_node(PODS + WIDTH) as node:
        report("idle", [started(node) for _ in range(STARTS)], IDLE_TARGET)
        node.start_agent()
        node.wait_ready()
        node.fill()
        node.end_agent()
        report("full", [started(node) for _ in range(STARTS)], FULL_TARGET)
        pid = node.start_agent()
        node.wait_ready()
        grown(node, pid, comings)


def started(node: AgentNode) -> Memory:
    """What an agent takes that has just become ready and has nothing more to do."""
    pid = node.start_agent()
    node.wait_ready()
    settle(pid)
    memory = Memory.of(pid)
    node.end_agent()
    return memory


def report(name: str, found: list[Memory], target: float) -> None:
    show(f"agent_memory_{name}_rss", "MiB", [memory.rss for memory in found], target=target)
    show(f"agent_memory_{name}_pss", "MiB", [memory.pss for memory in found])


def settle(pid: int) -> None:
    """Until the process has used no processor time for a second."""
    ticks = -1
    while (now := _ticks(pid)) != ticks:
        ticks = now
        time.sleep(1)


def _ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def grown(node: AgentNode, pid: int, comings: int) -> None:
    """Figures of memory while Pods come and go, ten at a time."""
    samples: dict[int, Memory] = {0: Memory.of(pid)}
    began = time.monotonic()
    with ThreadPoolExecutor(WIDTH) as pool:
        for count in range(0, comings, WIDTH):
            come_and_go(node, pool, [f"job-{count + n}" for n in range(WIDTH)])
            if (count + WIDTH) % SAMPLE == 0:
                samples[count + WIDTH] = Memory.of(pid)
                print(f"{count + WIDTH} Pods, {samples[count + WIDTH].rss:.1f} MiB", file=sys.stderr)
    show("agent_memory_pod_seconds", "s", [(time.monotonic() - began) / comings])
    settle(pid)
    report(f"after_{comings}", [Memory.of(pid)], FULL_TARGET)
    late = {count: memory for count, memory in samples.items() if count >= min(WARM, comings // 2)}
    private = {count: memory.private for count, memory in late.items()}
    values = list(private.values())
    slope = statistics.linear_regression(list(private), values).slope * 1000
    show("agent_memory_growth", "MiB", [values[-1] - values[0]], target=GROWTH_TARGET)
    show("agent_memory_slope", "MiB/1000_Pods", [slope])


def come_and_go(node: AgentNode, pool: ThreadPoolExecutor, names: list[str]) -> None:
    for name in names:
        node.api.add_pod(name, "node-1")
    for command in ("ADD", "DEL"):
        list(pool.map(functools.partial(node.call, command), names, node.spaces[PODS:]))
    for name in names:
        node.api.delete_pod(name)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COMINGS)
