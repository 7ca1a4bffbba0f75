"""A million packets in five thousand random clusters are explained as a real switch treats them."""

from __future__ import annotations

import pytest

from benchmarks.explain import bridge
from benchmarks.policy_trial import Trial
from tests.ovs.ovs_process import ovs_process

FIRST, CLUSTERS, PACKETS = 1_000_000, 500, 200
"""The first seed; in each slice; in each cluster."""


@pytest.mark.wide
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("slice_number", range(10))
def test_a_hundred_thousand_packets_of_a_million_are_explained_as_they_are_enforced(
    slice_number: int,
) -> None:
    trial, first = Trial(), FIRST + slice_number * CLUSTERS
    with ovs_process() as ovs:
        switch = bridge(ovs)
        for seed in range(first, first + CLUSTERS):
            trial.cluster(switch, seed, PACKETS)
            assert trial.differences == []
        switch.close()
    assert trial.packets == CLUSTERS * PACKETS
