"""One Egress on two gateways, of which one loses its power: only its own Pods move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent_node import pod_namespace, wait_ready
from own_lab import own_lab
from quiet_pod import quiet_pods
from two_gateways import PODS, two_gateways

from lab import fault
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

LOST, KEPT, WHERE = "node-1", "node-2", "node-3"
"""Both gateways, and the Node of the Pods, which is the next gateway."""

# a Node that stands still for want of a processor may be taken for dead, too
pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("g", Settings(nodes=3, family="dual")) as found:
        yield found


@pytest.mark.parametrize("version", [4, 6])
def test_a_lost_gateway_of_two_moves_its_own_pods_alone_and_ends_their_connections(
    lab: Lab, version: int
) -> None:
    with quiet_pods(lab, dict.fromkeys(PODS, WHERE)) as pods:
        inside = {pod: pod_namespace(lab, WHERE, pods[pod]) for pod in pods}
        with two_gateways(lab, version, LOST, KEPT, inside) as way:
            fault.inject(lab, LOST, "power-off")
            way.moves(WHERE, KEPT)
            fault.inject(lab, LOST, "power-on")
            wait_ready(lab, LOST)
            way.stands(LOST, KEPT)
