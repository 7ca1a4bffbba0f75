"""TrafficControls as features that follow packets see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.framework.diversion import Diversion, DivertedPod
from antrea.features.traffic_control.agent import CLOSED, closed_of, steering_of
from antrea.features.traffic_control.switch_port import usable

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface


def diverted_pod(facts: Facts, pod: PodInterface) -> DivertedPod | None:
    """Return the diversion of a Pod by the TrafficControl that counts for it."""
    row = steering_of(facts, pod)
    if row is None:
        return None
    port = usable(facts, row.target)
    return DivertedPod(
        row.name,
        row.direction,
        row.redirects,
        row.target.name if row.target else "its target",
        port.ofport if port else 0,
        row.returned.name if row.returned else "",
    )


DIVERSIONS = (Diversion(CLOSED, closed_of, diverted_pod),)
