"""A rule with thousands of peers or exceptions is taken in step by step, so that no step holds the event loop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from native_world import row, space

from antrea.apis.networking import NetworkPolicy
from antrea.engine import Facts
from antrea.features.network_policy.controller import antrea_internal_policy, kube_policy
from antrea.features.network_policy.internal_policy import PORTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

MANY = 3000
MAX_CALLS = 100 * PORTION
"""Of functions, between two looks at the clock; a peer takes about 30."""
Peer = dict[str, Any]
CIDRS = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(MANY)]
PEERS: dict[str, list[Peer]] = {
    "selectors": [{"podSelector": {"matchLabels": {"app": f"a{number}"}}} for number in range(MANY)],
    "blocks": [{"ipBlock": {"cidr": cidr}} for cidr in CIDRS],
    "exceptions": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": CIDRS}}],
    "blocks that cannot be read": [{"ipBlock": {"cidr": f"0{cidr}"}} for cidr in CIDRS],
}


def kube(peers: list[Peer]) -> tuple[Callable[..., Iterator[Any]], Any]:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}
    meta = {"name": "p", "namespace": "ns", "uid": "u", "generation": 1}
    found = kube_policy.policy_row(msgspec.convert({"metadata": meta, "spec": spec}, NetworkPolicy))
    return kube_policy.internal_kube_policy, found


def native(peers: list[Peer]) -> tuple[Callable[..., Iterator[Any]], Any]:
    into = {"action": "Drop", "name": "r", "from": peers}
    spec = {"priority": 5, "appliedTo": [{"podSelector": {}}], "ingress": [into]}
    return antrea_internal_policy.internal_policy, row("ClusterNetworkPolicy", "p", spec=spec)


@pytest.mark.parametrize("kind", [kube, native])
@pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS)
def test_no_step_takes_in_more_than_a_portion(
    kind: Callable[[list[Peer]], tuple[Callable[..., Iterator[Any]], Any]], peers: list[Peer]
) -> None:
    unit, found = kind(peers)
    facts, calls, most = Facts(), 0, 0
    facts.put(space("ns"))

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in unit(facts, found):
            calls, most = 0, max(most, calls)
    finally:
        sys.setprofile(before)
    assert max(most, calls) < MAX_CALLS
