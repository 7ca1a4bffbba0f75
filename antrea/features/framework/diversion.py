"""Declaration of a feature that copies packets of Pods aside or redirects them, in module `diversion` of its folder.

Features that follow packets through the switch know such features by these declarations only.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from antrea.features import FEATURES
from antrea.features.framework.plug import declared
from antrea.openflow.fields import TARGET_OF_PORT
from antrea.openflow.match import in_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface
    from antrea.openflow.field import Match


class DivertedPod(NamedTuple):
    """Diversion of the packets of one Pod."""

    name: str
    """Name of the object that selects the Pod."""
    direction: str
    """Ingress, Egress or Both."""
    redirects: bool
    """Whether packets are redirected; else they are copied."""
    target: str
    """Name of the port that receives the packets."""
    ofport: int
    """Number of that port; 0 while it is missing."""
    returned: str
    """Name of the port where redirected packets come back; empty if nowhere."""


class Diversion(NamedTuple):
    """Packets that a feature marks between routing and output: an element of `DIVERSIONS`."""

    closed_priority: int
    """Priority of the flows that drop packets, in the table where others are marked."""
    closed: Callable[[Facts, PodInterface], Iterator[Match]]
    """Return packets of a Pod that are dropped, as they would bypass an inspection."""
    of_pod: Callable[[Facts, PodInterface], DivertedPod | None]
    """Return the diversion of a Pod; None if there is none, or while it is unknown which object counts."""


@cache
def diversions() -> tuple[Diversion, ...]:
    """Return the declarations of all features."""
    return tuple(
        row for rows in declared(FEATURES, "diversion", Diversion, "DIVERSIONS").values() for row in rows
    )


def ways(pod: PodInterface, direction: str = "Both") -> Iterator[Match]:
    """Packets to a Pod (Ingress), and from it (Egress)."""
    if direction != "Egress":
        yield TARGET_OF_PORT(pod.ofport).match
    if direction != "Ingress":
        yield in_port(pod.ofport)
