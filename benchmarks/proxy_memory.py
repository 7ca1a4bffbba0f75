"""How much memory does the agent take for each flow and group bucket of Services?

`python -m benchmarks.proxy_memory [SERVICES]`: the real agent, Open vSwitch (userspace datapath) and controller of `agent_node`; needs root. It is
started without Services and with SERVICES of 5 Endpoints each, by turns with nothing but that between, and looked at when it has nothing
more to do; the difference is divided by the flows and buckets that the switch has more.
"""

from __future__ import annotations

import statistics
import sys

from figure import show

from benchmarks.agent_memory import settle
from benchmarks.agent_node import AgentNode, Memory, agent_node
from benchmarks.kube_api import store
from benchmarks.proxy_start import SERVICES
from benchmarks.service_lists import stored

ROUNDS = 3
TARGET = 1.6
"""KiB."""


def started(node: AgentNode) -> tuple[Memory, int]:
    """What an agent takes that has become ready, and how many flows and buckets there are."""
    pid = node.start_agent()
    node.wait_ready()
    settle(pid)
    memory = Memory.of(pid)
    entries = node.dump_flows().count("cookie=") + node.dump_groups().count("bucket=")
    node.end_agent()
    return memory, entries


def main(services: int) -> None:
    with agent_node(0) as node:
        without = [started(node) for _ in range(ROUNDS)]
        store(stored(services))
        started(node)
        filled = [started(node) for _ in range(ROUNDS)]
    base = statistics.median(memory.rss for memory, _ in without)
    more = filled[0][1] - without[0][1]
    if more < services:
        sys.exit(f"the switch has {more} flows and buckets of {services} Services")
    show(f"proxy_memory_{services}", "MiB", [memory.rss - base for memory, _ in filled])
    each = [(memory.rss - base) * 1024 / more for memory, _ in filled]
    show(f"proxy_memory_{services}_each", "KiB for each flow and bucket", each, target=TARGET)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SERVICES)
