"""Policies change, the switch is restarted, the agent is killed between two bundles: what both states forbid never passes.

After each call to the switch, packets that are forbidden before the change and after it are traced.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest
from inspecting_sink import InspectingSink
from ovs_process import until
from policy_oracle import (
    ANY,
    FAR,
    LOCAL,
    OnePolicy,
    Packet,
    entry,
    expected,
    passes,
    ports,
    some_packet,
    some_rule,
)
from policy_switch import CONFIG, FEATURES, GATEWAY, NODE, PEER, PIPELINE, TUNNEL, Switch

from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.received import KINDS
from antrea.openflow.cookie import Category
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.disk.id_journal import FileJournal
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from tests.unit.features.policy_world import (
    addresses,
    applied,
    block,
    interface,
    native,
    peer,
    policy,
    port,
    rule,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from ovs_bridge import OvsBridge

    from antrea.engine import Sink
    from antrea.facts.fact import Fact

SMALL = 7
"""Entries in one call to a sink that can do with parts; the switch cannot, and gets each change whole."""
Rows = dict[tuple[type, str], "Fact"]
TIERS = (0, 0, 50, 250)


def stated(name: str, one: OnePolicy) -> Iterator[Fact]:
    """A policy whose groups keep their names whoever is in them, as those of a controller do."""
    yield from applied(f"{name} for", *(pod.told for pod in LOCAL if pod.name in one.pods))
    rules = []
    for number, each in enumerate(one.rules):
        names = [f"{name} {number} {index}" for index in range(len(each.groups))]
        for group, pods in zip(names, each.groups, strict=True):
            yield from addresses(group, *(pod.told for pod in (*LOCAL, *FAR) if pod.name in pods))
        blocks = ANY if each.everybody else [block(cidr, *holes) for cidr, holes in each.blocks]
        services = [port(first, last or None, protocol) for protocol, first, last in each.ports]
        place = sum(before.direction == each.direction for before in one.rules[:number])
        other = peer(*names, blocks=blocks)
        rules.append(rule(each.direction, other, *services, action=each.action, priority=place))
    if one.tier:
        yield native(name, f"{name} for", *rules, tier=one.tier, priority=one.priority)
    else:
        yield policy(name, f"{name} for", *rules)


def told(policies: Sequence[OnePolicy]) -> Rows:
    found = [row for number, one in enumerate(policies) for row in stated(f"p{number}", one)]
    return {(type(row), row.key): row for row in found}


def some_pods(rnd: random.Random, pods: Sequence[Any]) -> frozenset[str]:
    """Nobody at times: a group that has shrunk to nothing."""
    return frozenset(rnd.sample([pod.name for pod in pods], rnd.randrange(4)))


def some_policy(rnd: random.Random, tier: int) -> OnePolicy:
    actions = ("Allow", "Drop", "Pass") if tier else ("Allow",)
    rules = tuple(some_rule(rnd, actions) for _ in range(rnd.randrange(1, 4)))
    return OnePolicy(some_pods(rnd, LOCAL), rules, tier, rnd.choice((1.0, 5.0)) if tier else 0)


def changed(rnd: random.Random, one: OnePolicy) -> OnePolicy:
    """Other rules, or the same for other Pods with other peers, all at once."""
    if rnd.random() < 0.3:
        return some_policy(rnd, one.tier)
    members = (*LOCAL, *FAR)
    moved = [each._replace(groups=tuple(some_pods(rnd, members) for _ in each.groups)) for each in one.rules]
    return one._replace(pods=some_pods(rnd, LOCAL), rules=tuple(moved))


class Seen(InspectingSink):
    """Of the agent; after each call it looks whether a packet passes that must not."""

    def __init__(self, ofctl: Ofctl, cookie_round: int, switch: Switch) -> None:
        super().__init__(ofctl, PIPELINE, cookie_round)
        self.ofctl = ofctl
        self.switch = switch
        self.never: list[Packet] = []
        self.leaks: list[Packet] = []

    def inspect(self) -> None:
        passed = (packet for packet in self.never if "-> output port is" in self.switch.trace(entry(packet)))
        self.leaks += passed


class Agent:
    """One life of an agent on this switch."""

    def __init__(self, journal: Path, sink: Seen, rows: Rows, batch: int) -> None:
        self.facts = Facts(FileJournal(journal))
        for pool, low, high in POLICY.ranks:
            self.facts.ids.between(pool, low, high)
        self.sink = sink
        node: tuple[Fact, ...] = (CONFIG, NODE, PEER, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE))
        pods = (interface(pod.name, pod.number, *pod.ips) for pod in LOCAL)
        for row in (*node, *pods, *rows.values()):
            self.facts.put(row)
        for kind in KINDS:
            self.facts.synced(kind)
        units = [unit for feature in FEATURES for unit in feature.units]
        sweeps = {int(category): KINDS for category in Category}
        self.meters = MeterSink(sink.ofctl)
        sinks: dict[type, Sink] = {Flow: sink, Group: sink, Meter: self.meters}
        self.engine = Engine(self.facts, units, sinks, {}, sweeps, pace=Pace(first=0.02, batch=batch))

    def become(self, before: Rows, after: Rows) -> None:
        for kind, key in before.keys() - after.keys():
            self.facts.drop(kind, key)
        for ref in after:
            if before.get(ref) != after[ref]:
                self.facts.put(after[ref])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.engine.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def switch(ovs: OvsBridge) -> Iterator[Switch]:
    for name, number in ports().items():
        if name not in ovs.vsctl("list-ports", "br-int").split():
            ovs.add_port(name, number)
    ovs.clear()
    found = Switch(ovs.process.directory)
    yield found
    found.close()


def forbidden(rnd: random.Random, *states: Sequence[OnePolicy]) -> list[Packet]:
    packets = {some_packet(rnd) for _ in range(300)}
    return [one for one in packets if not any(passes(state, one) for state in states)][:12]


def right(switch: Switch, rnd: random.Random, state: Sequence[OnePolicy]) -> None:
    """What the APIs say of this state is what the switch does."""
    for packet in [some_packet(rnd) for _ in range(25)]:
        wanted = f"-> output port is {expected(packet)}\n" if passes(state, packet) else ""
        trace = switch.trace(entry(packet))
        assert wanted in trace, packet
        assert wanted or "-> output port is" not in trace, packet


@pytest.mark.parametrize("seed", range(2))
async def test_no_packet_passes_during_a_change_that_is_forbidden_before_and_after(
    ovs: OvsBridge, switch: Switch, tmp_path: Path, seed: int
) -> None:
    rnd = random.Random(seed)
    state = [some_policy(rnd, tier) for tier in TIERS]
    sink = Seen(Ofctl(ovs.process.directory / "br-int.mgmt"), 1, switch)
    agent = Agent(tmp_path / "ids", sink, told(state), SMALL)
    checked = 0
    async with agent.running():
        await asyncio.wait_for(agent.engine.quiet(), 60)
        for _ in range(12):
            after = [changed(rnd, one) for one in state]
            sink.never = forbidden(rnd, state, after)
            checked += len(sink.never)
            agent.become(told(state), told(after))
            await asyncio.wait_for(agent.engine.quiet(), 60)
            state = after
        right(switch, rnd, state)
    assert sink.leaks == []
    assert checked > 50


@pytest.mark.parametrize("seed", range(2))
async def test_nor_when_the_agent_is_killed_between_two_bundles_and_another_hears_of_more_changes(
    ovs: OvsBridge, switch: Switch, tmp_path: Path, seed: int
) -> None:
    rnd = random.Random(100 + seed)
    state = [some_policy(rnd, tier) for tier in TIERS]
    ofctl = Ofctl(ovs.process.directory / "br-int.mgmt")
    for life in range(1, 4):
        sink = Seen(ofctl, life, switch)
        agent = Agent(tmp_path / "ids", sink, told(state), SMALL)
        async with agent.running():
            await asyncio.wait_for(agent.engine.quiet(), 60)
            right(switch, rnd, state)
            half = [changed(rnd, one) for one in state[:2]] + state[2:]
            after = half[:2] + [changed(rnd, one) for one in half[2:]]
            agent.become(told(state), told(half))
            await asyncio.wait_for(agent.engine.quiet(), 60)
            sink.last = sink.calls
            agent.become(told(half), told(after))
            await asyncio.wait_for(sink.killed.wait(), 60)
        state = [changed(rnd, one) for one in after]
    agent = Agent(tmp_path / "ids", Seen(ofctl, 5, switch), told(state), SMALL)
    async with agent.running():
        await asyncio.wait_for(agent.engine.quiet(), 60)
        right(switch, rnd, state)


@pytest.mark.parametrize("seed", range(2))
async def test_nor_between_the_flows_of_one_agent_and_those_of_the_next(
    ovs: OvsBridge, switch: Switch, tmp_path: Path, seed: int
) -> None:
    rnd = random.Random(200 + seed)
    state = [some_policy(rnd, tier) for tier in TIERS]
    ofctl = Ofctl(ovs.process.directory / "br-int.mgmt")
    leaks: list[Packet] = []
    for life in range(1, 6):
        sink = Seen(ofctl, life, switch)
        after = [changed(rnd, one) for one in state]
        sink.never = forbidden(rnd, state, after) if life > 1 else []
        agent = Agent(tmp_path / "ids", sink, told(after), SMALL)
        async with agent.running():
            await asyncio.wait_for(agent.engine.quiet(), 60)
            right(switch, rnd, after)
        leaks += sink.leaks
        state = after
    assert leaks == []


async def test_nor_while_the_switch_is_restarted_during_a_change(
    ovs: OvsBridge, switch: Switch, tmp_path: Path
) -> None:
    rnd = random.Random(1)
    state = [some_policy(rnd, tier) for tier in TIERS]
    management = ovs.process.directory / "br-int.mgmt"
    sink = Seen(Ofctl(management), 1, switch)
    agent = Agent(tmp_path / "ids", sink, told(state), SMALL)
    async with agent.running():
        await asyncio.wait_for(agent.engine.quiet(), 60)
        for _ in range(3):
            after = [changed(rnd, one) for one in state]
            sink.never = forbidden(rnd, state, after)
            ovs.process.kill("ovs-vswitchd")
            management.unlink()
            agent.become(told(state), told(after))
            await asyncio.sleep(0.05)  # in which calls fail
            ovs.process.start_switch()
            until(management.exists, "management socket")
            sink.switch = Switch(ovs.process.directory)
            sink.inspect()
            for lost in (sink, agent.meters):
                agent.engine.resync(lost)
            await asyncio.wait_for(agent.engine.quiet(), 60)
            right(sink.switch, rnd, after)
            sink.switch.close()
            state = after
    assert sink.leaks == []
