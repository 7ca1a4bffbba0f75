"""How long until Services are in the switch, and what does one Endpoint's change cost, by how many Services there are?

`python -m benchmarks.proxy_scale [SERVICES] [CHANGES]`: the agent's units and sink with a private Open vSwitch (dummy datapath, no
root), in one process. "Restart" begins with the lists of kube-apiserver as JSON in memory, of SERVICES Services with 5 Endpoints
each, and ends when the switch has taken all flows and groups; starting Python and the connection to kube-apiserver are not in it.
A change is one Endpoint that becomes unready, or ready again, from the decoded object to the switch's answer. As root, half as many
changes follow beside kube-proxy, from the request to kube-apiserver (`proxy_change`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING

import msgspec
from figure import show
from policy_bridge import policy_bridge
from policy_switch import BY_ANTREA, CONFIG, GATEWAY, NODE, PEER, TUNNEL

from antrea.apis import core
from antrea.apis.discovery import EndpointSlice
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.service import ServiceEndpoint
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.proxy.agent import FEATURE
from antrea.features.proxy.service import endpoint_rows, service_row
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.ofctl import Ofctl
from benchmarks import proxy_change
from benchmarks.proxy_change import MILLISECONDS
from benchmarks.proxy_start import SECONDS, SERVICES
from benchmarks.service_lists import ENDPOINTS, lists
from tests.ovs.ovs_process import ovs_process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from antrea.outside.vswitch.ofctl import Refusal

CHANGES = 200
LARGE = 5_000
"""Endpoints of the one Service whose change is measured in bytes."""


class MeasuredOfctl(Ofctl):
    """Notes the text of what is sent."""

    def __init__(self, socket: Path) -> None:
        super().__init__(socket)
        self.sent: list[str] = []

    async def bundle(self, lines: Sequence[str]) -> Refusal | None:
        self.sent += lines
        return await super().bundle(lines)


class Agent:
    """The units of AntreaProxy and the switch."""

    def __init__(self, directory: Path) -> None:
        self.facts = Facts()
        self.ofctl = MeasuredOfctl(directory / "br-int.mgmt")
        gates = EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy"}))
        node = AgentNode("n1", NODE.node_ips, NODE.node_ips, pod_cidrs=NODE.pod_cidrs)
        for row in (CONFIG, NODE, PEER, GATEWAY, TUNNEL, gates, node, RealizedPipeline(BY_ANTREA.pipeline)):
            self.facts.put(row)
        sink = FlowSink(self.ofctl, BY_ANTREA.pipeline, 1)
        self.engine = Engine(self.facts, FEATURE.units, {Flow: sink, Group: sink})

    async def load(self, services: bytes, slices: bytes) -> None:
        """Decode lists, and wait until the switch has all of them."""
        for service in msgspec.json.decode(services, type=list[core.Service]):
            if (found := service_row(service)) is not None:
                self.facts.put(found)
        for one in msgspec.json.decode(slices, type=list[EndpointSlice]):
            for row in endpoint_rows(one):
                self.facts.put(row)
        await self.stand()

    async def stand(self) -> None:
        """Wait for what the rows want."""
        for kind in (Group, Flow):
            await self.engine.stand(kind)

    async def change(self, row: ServiceEndpoint) -> float:
        """Milliseconds until the switch has it."""
        began = time.monotonic()
        self.facts.put(row)
        await self.stand()
        return 1000 * (time.monotonic() - began)


async def measured(
    directory: Path, services: int, endpoints: int, changes: int
) -> tuple[float, list[float], list[int]]:
    """Seconds of the restart; milliseconds, and bytes of text, of each change."""
    objects = lists(services, endpoints)
    agent = Agent(directory)
    running = asyncio.create_task(agent.engine.run())
    began = time.monotonic()
    await agent.load(*objects)
    took = time.monotonic() - began
    assert not agent.engine.errors.counts, agent.engine.errors.counts
    rows = agent.facts.all(ServiceEndpoint)
    times, sizes = [], []
    for number in range(changes):
        row = rows[number // 2 * 7919 % len(rows)]
        agent.ofctl.sent.clear()
        ready = bool(number % 2)
        times.append(await agent.change(msgspec.structs.replace(row, ready=ready, serving=ready)))
        sizes.append(sum(len(line) for line in agent.ofctl.sent))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return took, times, sizes


def run(services: int, endpoints: int, changes: int) -> tuple[float, list[float], list[int]]:
    """On an empty switch."""
    with ovs_process() as ovs:
        policy_bridge(ovs).close()
        return asyncio.run(measured(ovs.directory, services, endpoints, changes))


def main() -> None:
    """Exit code 0 with figures that are met or missed."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else SERVICES
    changes = int(sys.argv[2]) if len(sys.argv) > 2 else CHANGES
    counts = sorted({10, 1_000, most})
    for services in counts:
        took, times, sizes = run(services, ENDPOINTS, changes)
        worst = sorted(times)[len(times) * 99 // 100]
        show(f"proxy_restart_{services}", "s", [took], target=SECONDS if services >= SERVICES else None)
        show(f"proxy_endpoint_{services}_p99", "ms", [worst], target=MILLISECONDS)
        show(f"proxy_endpoint_{services}", "ms", times)
        show(f"proxy_endpoint_{services}_text", "bytes", [float(size) for size in sizes])
    _, times, sizes = run(1, LARGE, changes)
    show(f"proxy_one_of_{LARGE}", "ms", times)
    show(f"proxy_one_of_{LARGE}_text", "bytes", [float(size) for size in sizes])
    if os.geteuid() == 0:
        proxy_change.main(changes // 2, tuple(counts))


if __name__ == "__main__":
    main()
