"""Groups of peers that many rules name: the switch judges packets of their members as rule by rule."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from policy_oracle import (
    BASELINE,
    FAR,
    LOCAL,
    OnePolicy,
    entries_of,
    entry,
    expected,
    passes,
    ports,
    sent_to,
    some_packet,
    some_rule,
)
from policy_switch import PIPELINE

from antrea.features.network_policy.agent.peer_class import MANY
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

PACKETS = 40
NAMES = [pod.name for pod in (*LOCAL, *FAR)]


def some_policy(rnd: random.Random, groups: list[frozenset[str]], count: int, tier: int = 0) -> OnePolicy:
    """Of so many rules in each direction, which all name the first group, and some of them another that overlaps."""
    actions = ("Allow", "Drop", "Reject") if tier else ("Allow",)
    rules = []
    for number in range(2 * count):
        direction = ("In", "Out")[number % 2]
        one = some_rule(rnd, actions)
        ports = tuple(port for port in one.ports if direction == "In" or port[1] != "http")
        named = (groups[0], *rnd.sample(groups[1:], rnd.randrange(2)))
        one = one._replace(direction=direction, groups=named, blocks=one.blocks[:1], everybody=False)
        rules.append(one._replace(ports=(*ports, ("UDP", 20_000 + number, 0))))  # no two are the same rule
    return OnePolicy(frozenset(pod.name for pod in rnd.sample(LOCAL, 3)), tuple(rules), tier, 5.0)


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


@pytest.mark.parametrize("tier", [0, 100, BASELINE])
def test_addresses_that_many_rules_share_are_judged_as_each_rule_says(bridge: OvsBridge, tier: int) -> None:
    rnd = random.Random(tier)
    groups = [frozenset(rnd.sample(NAMES, 3)) for _ in range(3)]
    policies = [some_policy(rnd, groups, MANY + 1, tier)]
    if tier and tier != BASELINE:  # which is asked where no rule of Kubernetes isolates
        policies.append(some_policy(rnd, groups, 3))
    bridge.clear()
    wanted = entries_of(policies)
    shared = [
        one
        for one in wanted
        if isinstance(one, Flow) and any(term.startswith("reg11=") for term in one.match)
    ]
    assert {term for one in shared for term in one.match} >= {"reg11=0x0", "reg11=0x0/0x80000000"}
    bridge.install(wanted, PIPELINE)
    seen = set()
    for _ in range(PACKETS):
        packet = some_packet(rnd)
        verdict = passes(policies, packet)
        seen.add(verdict)
        assert sent_to(bridge, entry(packet)) == (expected(packet) if verdict else 0), packet
    assert seen == {True, False}
