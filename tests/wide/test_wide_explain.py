"""100,000 packets in 500 random clusters, and as many to Services, are explained as a real switch treats them; $EXPLAIN_SLICES times as many."""

from __future__ import annotations

import os

import pytest
from policy_bridge import policy_bridge
from policy_trial import Trial

from tests.ovs.ovs_process import ovs_process

FIRST, CLUSTERS, PACKETS = 1_000_000, 500, 200
"""The first seed; in each slice; in each cluster."""
SERVICES_FIRST = 2_000_000
"""The first seed of clusters whose Services AntreaProxy serves."""


@pytest.mark.wide
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("slice_number", range(int(os.environ.get("EXPLAIN_SLICES", "1"))))
def test_a_hundred_thousand_packets_are_explained_as_they_are_enforced(
    slice_number: int,
) -> None:
    trial = of_clusters(FIRST + slice_number * CLUSTERS, proxied=False)
    assert trial.packets == CLUSTERS * PACKETS


@pytest.mark.wide
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_packets_are_explained_as_antrea_proxy_balances_them() -> None:
    trial = of_clusters(SERVICES_FIRST, proxied=True)
    assert trial.packets == CLUSTERS * PACKETS
    assert trial.balanced > trial.packets / 4
    assert trial.direct > trial.packets / 1000


def of_clusters(first: int, *, proxied: bool) -> Trial:
    """All packets of CLUSTERS clusters, none of which differs."""
    trial = Trial()
    with ovs_process() as ovs:
        switch = policy_bridge(ovs)
        for seed in range(first, first + CLUSTERS):
            trial.cluster(switch, seed, PACKETS, proxied=proxied)
            assert trial.differences == []
        switch.close()
    return trial
