"""Which of several rules wins, and the ports that one has when names have become numbers."""

from __future__ import annotations

import random

from antrea.apis import controlplane as cp
from antrea.features.network_policy.agent.rule import RuleOrder, resolved


def test_lower_tiers_priorities_and_numbers_win_then_the_older_policy_then_the_smaller_uid() -> None:
    older, younger = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
    wanted = [
        RuleOrder(50, 9, 9, younger, "b"),
        RuleOrder(250, 1, 9, younger, "b"),
        RuleOrder(250, 5.5, 0, younger, "b"),
        RuleOrder(250, 5.5, 1, older, "b-longer"),
        RuleOrder(250, 5.5, 1, younger, "a-longer"),
        RuleOrder(250, 5.5, 1, younger, "b"),
    ]
    mixed = random.Random(1).sample(wanted, len(wanted))
    assert sorted(mixed, key=lambda order: order.rank, reverse=True) == wanted


def test_a_port_that_has_become_a_number_keeps_its_source_ports() -> None:
    named = cp.Service(protocol="TCP", port="http", src_port=1024, src_end_port=2048)
    told = resolved((named,), (cp.NamedPort(name="http", port=80, protocol="TCP"),))
    assert told == (cp.Service(protocol="TCP", port=80, src_port=1024, src_end_port=2048),)
