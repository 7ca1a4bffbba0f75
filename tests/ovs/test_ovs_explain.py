"""Policies of all kinds, selectors and actions: the explanation says what a real switch does, and which rule decides.

Objects go through the units of controller and agent into the switch; the explanation reads the same objects alone.
`make bench BENCH=explain` does the same with 100,000 packets.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_cluster import Question, cluster, question
from policy_shrink import least
from policy_switch import LOCAL, NAMED, Agent, Switch, entry, expected, packet_of, ports, world_of
from policy_trial import Trial

from antrea.explain.verdict import judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ovs_bridge import OvsBridge
    from policy_cluster import Cluster

    from antrea.explain.packet import Packet
    from antrea.explain.policy import Native
    from antrea.explain.verdict import Half
    from antrea.explain.world import World

PACKETS = 40
ALL_DECISIONS = (0, 6, 9, 14, 24, 26, 27, 32, 36, 46, 47)
"""Clusters by their seeds, the fewest of the first 48 in which each kind of policy decides with each action, in both directions."""
NAMED_CLUSTERS = (32, 44, 51, 60, 103, 151, 165, 180)
"""Clusters by their seeds in which rules on names decide, each kind of policy with each of its verdicts once at least."""
DECIDED_BY_NAME = {
    *(("AntreaClusterNetworkPolicy", verdict) for verdict in ("Allow", "Drop", "Reject")),
    *(("AntreaNetworkPolicy", verdict) for verdict in ("Allow", "Drop", "Reject")),
    *(("AdminNetworkPolicy", verdict) for verdict in ("Allow", "Drop")),
    *(("K8sClusterNetworkPolicy", verdict) for verdict in ("Allow", "Drop")),
}


@pytest.fixture(scope="module")
def switch(ovs: OvsBridge) -> Iterator[Switch]:
    ovs.add_ports(ports())
    found = Switch(ovs.process.directory)
    yield found
    found.close()


@pytest.fixture(scope="module")
def trial() -> Trial:
    """One for all, which looks for the least cluster once only."""
    return Trial()


@pytest.mark.parametrize("seed", range(25))
def test_clusters_are_explained_as_they_are_enforced(switch: Switch, trial: Trial, seed: int) -> None:
    known = len(trial.differences)
    trial.cluster(switch, seed, PACKETS)
    assert trial.differences[known:] == []


@pytest.mark.parametrize("first", [*range(500, 512, 4), 2_000_052])  # the last: an Endpoint that has a name
def test_services_that_antrea_proxy_serves_are_explained_as_they_are_enforced(
    switch: Switch, trial: Trial, first: int
) -> None:
    known, balanced = len(trial.differences), trial.balanced
    for seed in range(first, first + 4):
        trial.cluster(switch, seed, PACKETS, proxied=True)
        assert trial.differences[known:] == []
    assert trial.balanced > balanced  # not in every single cluster


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


KINDS = ("AntreaClusterNetworkPolicy", "AntreaNetworkPolicy")
ADMIN = (
    ("AdminNetworkPolicy", "T"),
    ("BaselineAdminNetworkPolicy", "B"),
    ("K8sClusterNetworkPolicy", "T"),
    ("K8sClusterNetworkPolicy", "B"),
)
BY_SERVICE = "toServices"
WANTED = {
    (direction, *decision)
    for direction in ("Egress", "Ingress")
    for decision in (
        *(("rule", kind, early, action) for kind in KINDS for early in "TB" for action in ("Allow", "Drop", "Reject")),
        ("rule", "K8sNetworkPolicy", "", "Allow"),
        *(("rule", kind, early, action) for kind, early in ADMIN for action in ("Allow", "Drop")),
        ("isolation", "", "", "Drop"),
        ("nothing", "", "", "Allow"),
        ("exempt", "", "", "Allow"),
    )
} | {("Egress", "rule", BY_SERVICE, early, action) for early in "TB" for action in ("Allow", "Drop", "Reject")}  # fmt: skip
"""Direction, what decides, of which kind of policy or on Services, in a tier before Kubernetes (T) or in the baseline (B), and how."""


def decision(world: World, half: Half) -> tuple[str, ...]:
    kind, tier = (half.rule.type, half.rule.tier) if half.rule else ("", "")
    policies: tuple[Native, ...] = (*world.objects.cluster_policies, *world.objects.policies)
    for one in policies:
        rules = one.spec.egress if half.direction == "Egress" else ()
        if half.rule and half.rule.uid == one.metadata.uid and rules and rules[half.rule.index].to_services:
            kind = BY_SERVICE
    early = "B" if tier.lower() == "baseline" else "T" if tier else ""
    return (half.direction, half.reason, kind, early, half.verdict)


def test_the_packets_meet_rules_of_all_kinds_and_actions() -> None:
    missing = set(WANTED)
    for seed in ALL_DECISIONS:
        rnd = random.Random(seed)
        world = world_of(cluster(rnd))
        for _ in range(PACKETS):
            found = judged(world, packet_of(world, question(rnd)))
            missing -= {decision(world, found.egress), decision(world, found.ingress)}
    assert missing == set()


@pytest.mark.parametrize(
    "clusters",
    [NAMED_CLUSTERS, pytest.param(range(200), marks=(pytest.mark.wide, pytest.mark.timeout(600)))],
    ids=["eight", "two hundred"],
)
def test_names_are_explained_as_they_are_enforced(switch: Switch, clusters: Iterable[int]) -> None:
    """In clusters where a rule on names decides: without these names another rule does, or none."""
    by_names: Counter[tuple[str, str]] = Counter()
    asked = [
        Question(pod, ip, 6 if ":" in ip else 4, "TCP", 80, 33000, None) for pod in LOCAL for ip in NAMED
    ]
    for seed in clusters:
        world = world_of(cluster(random.Random(seed)))
        packets = [packet_of(world, one) for one in asked]
        found = [(judged(world, packet), judged(world, nameless(packet))) for packet in packets]
        if all(named.egress.rule == other.egress.rule for named, other in found):
            continue
        agent = Agent(world)
        switch.install(agent.entries, agent.served.pipeline)
        for packet, (named, other) in zip(packets, found, strict=True):
            assert agent.decided(switch.trace(entry(packet))) == expected(named, packet), packet
            if named.egress.rule is not None and named.egress.rule != other.egress.rule:
                by_names[named.egress.rule.type, named.egress.verdict] += 1
    assert {*by_names} == DECIDED_BY_NAME, by_names


def nameless(packet: Packet) -> Packet:
    return msgspec.structs.replace(packet, destination=msgspec.structs.replace(packet.destination, names=()))
