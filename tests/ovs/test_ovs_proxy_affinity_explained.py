"""Which Endpoint a client with session affinity gets while random clusters change, with `antctl explain`'s evaluator as the oracle.

The objects go through the units of the agent into a real switch, by bundles, so that what clients have learned stays; the
explanation reads the same objects alone.
"""

from __future__ import annotations

import asyncio
import copy
import random
from typing import TYPE_CHECKING, Any

import pytest
from policy_cluster import cluster
from policy_services import served, service_question
from policy_switch import (
    LOCAL,
    REJECTED,
    Switch,
    choice,
    entered,
    entry,
    known,
    packet_of,
    served_by,
    told,
    world_of,
)
from proxy_switch import in_order

from antrea.engine import Engine, Facts
from antrea.explain.service import balanced
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.openflow.meter import Meter
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge
    from policy_cluster import Cluster

    from antrea.explain.service import Balanced, Endpoint
    from antrea.explain.world import Proxy, World
    from antrea.facts.fact import Fact

STEPS, QUESTIONS = 6, 16
STICKY_SHARE = 0.8


class FollowingAgent:
    """The agent's units, and the switch, as the objects of a cluster change."""

    def __init__(self, bridge: OvsBridge, proxy: Proxy) -> None:
        served = served_by(proxy)
        self.facts, self._bridge = Facts(), bridge
        for pool, low, high in POLICY.ranks:
            self.facts.ids.between(pool, low, high)
        self._engine = Engine(self.facts, [unit for one in served.features for unit in one.units])
        self._sink = FlowSink(Ofctl(bridge.process.directory / "br-int.mgmt"), served.pipeline, 1)
        self._told: dict[tuple[type[Fact], Any], Fact] = {}
        bridge.clear()

    def follow(self, world: World) -> None:
        """Take over the objects as they are now."""
        rows = {(type(row), row.key): row for row in (*known(world), *LOCAL.values(), *told(world.objects))}
        for kind, key in self._told.keys() - rows.keys():
            self.facts.drop(kind, key)
        for row in rows.values():
            self.facts.put(row)
        self._told, first = rows, not self._told
        plan = self._engine.plan()
        assert not self._engine.errors.standing, self._engine.errors.standing
        for meter in plan.put if first else ():
            if isinstance(meter, Meter):
                self._bridge.ofctl("add-meter", meter.text)
        asyncio.run(self._sink.apply(in_order(plan.put), in_order(plan.drop)[::-1]))
        self._bridge.appctl("revalidator/wait")


def without_policies(found: Cluster) -> Cluster:
    """What is asked here is where packets go, not whether they may."""
    return {kind: [] if "polic" in kind else rows for kind, rows in found.items()}


def changed(objects: Cluster, rnd: random.Random, sticky: set[str]) -> Proxy:
    """Give the Services Endpoints and settings anew; those of these names have session affinity."""
    proxy = served(rnd, objects)
    for service in objects["services"]:
        if service["metadata"]["name"] in sticky:
            service["spec"]["sessionAffinity"] = "ClientIP"
    return proxy._replace(direct_default="")


def chosen_by(balance: Balanced) -> tuple[str, ...]:
    """The Service, and the policies whose change lets clients choose anew."""
    spec = balance.service.spec
    return (balance.name, spec.internal_traffic_policy, spec.external_traffic_policy)


@pytest.mark.parametrize(
    "seed",
    [*range(2), 8, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(2, 100) if seed != 8)],
)
def test_clients_keep_the_endpoints_that_explain_names_and_no_others(bridge: OvsBridge, seed: int) -> None:
    rnd = random.Random(seed)
    base = without_policies(cluster(rnd))
    sticky = {one["metadata"]["name"] for one in base["services"] if rnd.random() < STICKY_SHARE}
    first = copy.deepcopy(base)
    proxy = changed(first, random.Random(f"{seed}/0"), sticky)
    asked = [service_question(rnd, first) for _ in range(QUESTIONS)]
    agent, switch = FollowingAgent(bridge, proxy), Switch(bridge.process.directory)
    earlier: dict[tuple[str, str, int | None, str], tuple[tuple[str, ...], Endpoint]] = {}
    for step in range(STEPS):
        objects = copy.deepcopy(base)
        changed(objects, random.Random(f"{seed}/{step}"), sticky)
        world = world_of(objects, proxy)
        agent.follow(world)
        for question in asked:
            packet = packet_of(world, question)
            key = (packet.source.ip, packet.destination.ip, packet.port, packet.protocol)
            before = earlier.pop(key, None)
            if (balance := balanced(world, packet)) is None:
                continue
            text = switch.trace(entry(entered(agent.facts, packet), rnd.getrandbits(16)), learns=True)
            _, found = choice(text)
            why = f"step {step}: {question} is for {balance}, the switch chose {found}"
            if not balance.endpoints:
                assert found is None, why
                assert (REJECTED in text) != balance.refused, why
                continue
            assert found in balance.endpoints, why
            if not balance.sticky:
                continue
            earlier[key] = chosen_by(balance), found
            if before and before[0] == chosen_by(balance) and before[1] in balance.endpoints:
                assert found == before[1], f"{why}, before {before}"
    switch.close()
