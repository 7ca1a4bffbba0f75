"""Policies in a real switch let those packets pass that the APIs say, by trace."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from policy_oracle import (
    LOCAL,
    OnePolicy,
    entry,
    expected,
    install,
    passes,
    ports,
    sent_to,
    some_packet,
    some_rule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ovs_bridge import OvsBridge

NAMES = [pod.name for pod in LOCAL]


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


def some_policy(rnd: random.Random, tier: int = 0) -> OnePolicy:
    actions = {0: ("Allow",), 253: ("Allow", "Drop")}.get(tier, ("Allow", "Drop", "Pass", "Reject"))
    rules = tuple(some_rule(rnd, actions) for _ in range(rnd.randrange(1, 4)))
    pods = frozenset(rnd.sample(NAMES, rnd.randrange(1, 4)))
    return OnePolicy(pods, rules, tier, rnd.choice((1.0, 5.0, 5.5)) if tier else 0)


def judge(bridge: OvsBridge, rnd: random.Random, policies: Sequence[OnePolicy]) -> None:
    """The switch and the oracle say the same of 50 packets, and not of all the same."""
    install(bridge, policies)
    packets = [some_packet(rnd) for _ in range(50)]
    wanted = {packet: expected(packet) if passes(policies, packet) else 0 for packet in packets}
    assert {packet: sent_to(bridge, entry(packet)) for packet in packets} == wanted
    assert len({bool(out) for out in wanted.values()}) == 2


@pytest.mark.parametrize("seed", range(5))
def test_kubernetes_policies_let_those_packets_pass_that_the_api_says(bridge: OvsBridge, seed: int) -> None:
    rnd = random.Random(seed)
    judge(bridge, rnd, [some_policy(rnd) for _ in range(rnd.randrange(1, 6))])


@pytest.mark.parametrize("seed", range(5))
def test_antreas_own_policies_come_in_their_order_around_those_of_kubernetes(
    bridge: OvsBridge, seed: int
) -> None:
    rnd = random.Random(100 + seed)
    tiers = [0, *(rnd.choice((0, 50, 250, 250, 253)) for _ in range(rnd.randrange(3, 9)))]
    judge(bridge, rnd, [some_policy(rnd, tier) for tier in tiers])
