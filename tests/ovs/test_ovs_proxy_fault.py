"""Hundreds of Services change at once, the agent is killed between two calls to the switch, the switch is killed: never half a Service.

After each call all of the switch is looked at: a Service that has a flow has its group, and each Endpoint that this may choose is translated to.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from inspecting_sink import InspectingSink
from policy_switch import CONFIG, GATEWAY, NODE, TUNNEL
from proxy_switch import BASIC, NODES

from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import FEATURE as PROXY
from antrea.openflow.cookie import Category
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.pipeline import Pipeline
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from ovs_bridge import OvsBridge

    from antrea.engine import Sink
    from antrea.facts.fact import Fact

SERVICES, SMALL = 200, 40
"""How many there are, and entries in one call of a sink that can do with parts."""
PIPELINE = Pipeline.realize(
    table for one in BASIC for table in one.tables_of(CONFIG, Families.of(NODE.pod_cidrs))
)
KINDS = (Service, ServiceEndpoint)
Rows = dict[str, "Service | ServiceEndpoint"]


def some_rows(rnd: random.Random) -> Rows:
    """Services with none to five Endpoints each, half of them at other addresses than before."""
    rows: list[Service | ServiceEndpoint] = []
    for number in range(SERVICES):
        if rnd.random() < 0.2:
            continue
        name = f"s{number}"
        ip = f"10.96.{rnd.randrange(2)}.{number}"
        rows.append(Service("a", name, (ip,), (("TCP", 80),), port_names=("http",), node_ports=(0,)))
        for one in range(rnd.randrange(6)):
            where = f"10.10.1.{rnd.randrange(1, 250)}"
            rows.append(
                ServiceEndpoint(
                    f"a/{name}-{one}", f"a/{name}", "http", "TCP", where, 8080, "n2", True, True, False
                )
            )
    return {row.key: row for row in rows}


def choices(bridge: OvsBridge) -> dict[str, frozenset[str]]:
    """By ClusterIP, the Endpoints that the switch chooses from; one that it does not translate to is called `lost`."""
    groups: dict[str, list[str]] = {}
    for line in bridge.ofctl("dump-groups").splitlines():
        if group := re.search(r"group_id=(\d+),type=select", line):
            groups[group[1]] = re.findall(r"set_field:0x([0-9a-f]+)->reg3", line)
    balancing, translating = (f"table={PIPELINE.id(name)}," for name in ("ServiceLB", "EndpointDNAT"))
    flows = bridge.dump()
    translated = {
        ip for line in flows if translating in line for ip in re.findall(r"reg3=0x([0-9a-f]+)", line)
    }
    found: dict[str, frozenset[str]] = {}
    for line in flows:
        if balancing in line and (one := re.search(r"nw_dst=([0-9.]+),.*group:(\d+)", line)):
            ends = groups.get(one[2], ["no group"])
            found[one[1]] = frozenset(end if end in translated else f"lost {end}" for end in ends)
    return found


def wanted(rows: Rows) -> dict[str, frozenset[str]]:
    """The same of rows."""
    ends: dict[str, set[str]] = {}
    for row in rows.values():
        if isinstance(row, ServiceEndpoint):
            ends.setdefault(row.service, set()).add(f"{int(ip_address(row.ip)):x}")
    services = [row for row in rows.values() if isinstance(row, Service)]
    return {row.ips[0]: frozenset(ends.get(row.key, ())) for row in services}


def halves(bridge: OvsBridge) -> list[str]:
    """Endpoints and groups that are missing of Services that have flows; none while no packet enters, as in a switch just started."""
    if not any(f"table={PIPELINE.id('Classifier')}," in line for line in bridge.dump()):
        return []
    return [end for ends in choices(bridge).values() for end in ends if not end.isalnum()]


class Seen(InspectingSink):
    """Of the agent; after each call it looks for Services of which a part is missing."""

    def __init__(self, bridge: OvsBridge, cookie_round: int) -> None:
        super().__init__(Ofctl(bridge.process.directory / "br-int.mgmt"), PIPELINE, cookie_round)
        self._bridge = bridge
        self.found: list[str] = []

    def inspect(self) -> None:
        self.found += halves(self._bridge)


@contextlib.asynccontextmanager
async def agent(sink: Seen, rows: Iterable[Fact]) -> AsyncIterator[tuple[Facts, Engine]]:
    """One life of an agent, from its start until it is killed."""
    facts = Facts()
    gates = EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy"}))
    for row in (CONFIG, NODE, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE), gates, *NODES, *rows):
        facts.put(row)
    for kind in KINDS:
        facts.synced(kind)
    sweeps = {int(category): KINDS for category in Category}
    sinks: dict[type, Sink] = {Flow: sink, Group: sink}
    pace = Pace(first=0.02, batch=SMALL)
    engine = Engine(facts, (*POD_CONNECTIVITY.units, *PROXY.units), sinks, {}, sweeps, pace=pace)
    task = asyncio.create_task(engine.run())
    try:
        yield facts, engine
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def become(facts: Facts, before: Rows, after: Rows) -> None:
    for key in before.keys() - after.keys():
        facts.drop(type(before[key]), key)
    for key, row in after.items():
        if before.get(key) != row:
            facts.put(row)


@pytest.mark.parametrize("seed", [1, 2])
async def test_neither_a_killed_agent_nor_a_killed_switch_leaves_half_a_service(
    ovs: OvsBridge, seed: int
) -> None:
    rnd = random.Random(seed)
    ovs.clear()
    states = [some_rows(rnd) for _ in range(5)]
    first = Seen(ovs, 1)
    async with agent(first, states[0].values()) as (facts, engine):
        await engine.quiet()
        assert choices(ovs) == wanted(states[0])
        become(facts, states[0], states[1])
        await engine.quiet()
        assert choices(ovs) == wanted(states[1])
        first.last = first.calls
        become(facts, states[1], states[2])
        await asyncio.wait_for(first.killed.wait(), 20)
    second = Seen(ovs, 2)
    async with agent(second, states[3].values()) as (facts, engine):
        await engine.quiet()
        assert choices(ovs) == wanted(states[3])
        become(facts, states[3], states[4])
        await asyncio.sleep(rnd.random() / 10)
        ovs.process.kill("ovs-vswitchd")
        await asyncio.to_thread(ovs.process.start_switch)
        ovs.vsctl("set", "bridge", "br-int", f"external_ids:restarted={seed}")
        engine.resync(second)
        await engine.quiet()
        assert choices(ovs) == wanted(states[4])
    assert (first.found, second.found) == ([], [])
    assert first.calls > 2
