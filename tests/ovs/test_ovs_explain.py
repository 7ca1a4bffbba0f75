"""Policies of all kinds, selectors and actions: the explanation says what a real switch does, and which rule decides.

Objects go through the units of controller and agent into the switch; the explanation reads the same objects alone.
`make bench BENCH=explain` does the same with 100,000 packets.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from antrea.explain.verdict import judged
from benchmarks.policy_cluster import cluster, question
from benchmarks.policy_shrink import least
from benchmarks.policy_switch import Switch, agent_of, entry, expected, packet_of, ports, smallest, world_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ovs_bridge import OvsBridge

    from benchmarks.policy_cluster import Cluster

PACKETS = 40


@pytest.fixture(scope="module")
def switch(ovs: OvsBridge) -> Iterator[Switch]:
    for name, number in ports().items():
        ovs.add_port(name, number)
    found = Switch(ovs.process.directory)
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(25))
def test_clusters_are_explained_as_they_are_enforced(switch: Switch, seed: int) -> None:
    rnd = random.Random(seed)
    objects = cluster(rnd)
    world = world_of(objects)
    agent = agent_of(world)
    switch.install(agent.flows)
    sent = {asked: packet_of(world, asked) for asked in (question(rnd) for _ in range(PACKETS))}
    traced = {asked: agent.decided(switch.trace(entry(packet))) for asked, packet in sent.items()}
    for asked, packet in sent.items():
        if traced[asked] != expected(world, packet):
            found = smallest(switch, objects, asked)
            pytest.fail(f"{asked} is not explained as it is enforced in {json.dumps(found)}")


def test_what_a_failure_shows_is_the_least_cluster_that_has_it() -> None:
    def has_a_drop(objects: Cluster) -> bool:
        policies = objects["cluster_policies"]
        return any(
            rule["action"] == "Drop" for policy in policies for rule in policy["spec"].get("ingress", ())
        )

    found = next(one for seed in range(50) if has_a_drop(one := cluster(random.Random(seed))))
    assert len(found["cluster_policies"]) > 1
    shrunk = least(found, has_a_drop)
    (policy,) = shrunk.pop("cluster_policies")
    assert policy["spec"]["ingress"] == [{"action": "Drop"}]
    assert policy["spec"].keys() == {"priority", "ingress"}
    assert not any(shrunk.values())


def test_the_packets_meet_rules_of_all_kinds_and_actions() -> None:
    met = set()
    for seed in range(60):
        rnd = random.Random(seed)
        world = world_of(cluster(rnd))
        for _ in range(PACKETS):
            found = judged(world, packet_of(world, question(rnd)))
            for half in (found.egress, found.ingress):
                rule = half.rule
                early = (
                    "" if rule is None or not rule.tier else "baseline" if rule.tier == "baseline" else "tier"
                )
                met.add((half.direction, half.reason, rule.type if rule else "", early, half.verdict))
    wanted = {
        (direction, "rule", kind, early, action)
        for direction in ("Egress", "Ingress")
        for kind in ("AntreaClusterNetworkPolicy", "AntreaNetworkPolicy")
        for early in ("tier", "baseline")
        for action in ("Allow", "Drop", "Reject")
    }
    for direction in ("Egress", "Ingress"):
        wanted |= {
            (direction, "rule", "K8sNetworkPolicy", "", "Allow"),
            (direction, "isolation", "", "", "Drop"),
            (direction, "nothing", "", "", "Allow"),
            (direction, "exempt", "", "", "Allow"),
        }
    assert wanted - met == set()
