"""A million packets in ten thousand random clusters are explained as a real switch treats them."""

from __future__ import annotations

import pytest

from benchmarks.explain import bridge
from benchmarks.policy_trial import Trial
from tests.ovs.ovs_process import ovs_process


@pytest.mark.wide
@pytest.mark.timeout(7200)
def test_a_million_packets_are_explained_as_they_are_enforced() -> None:
    trial = Trial()
    with ovs_process() as ovs:
        switch = bridge(ovs)
        for seed in range(1_000_000, 1_010_000):
            trial.cluster(switch, seed, 100)
            assert trial.differences == []
        switch.close()
    assert trial.packets == 1_000_000
