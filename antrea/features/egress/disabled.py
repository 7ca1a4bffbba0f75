"""Egresses while the gate Egress is off in the controller: no Pod is selected, and no address is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.egress_address import EGRESSES
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.egress.controller.allocation import ALLOCATED
from antrea.features.egress.spec import IP_ASSIGNED
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import MANAGER, DisabledObject, switched_off, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GATE = "Egress"


class DisabledEgress(DisabledObject, frozen=True):
    """Egress without a feature that acts on it."""


def withdrawn_egress_status(_: Facts, egress: DisabledEgress) -> Iterator[Status]:
    """Yield the status without address and Node, whatever agents wrote before."""
    yield Status(
        path=egress.path,
        kind="Egress",
        manager=MANAGER,
        fields=(("egressIP", ""), ("egressNode", "")),
        conditions=(switched_off(ALLOCATED, GATE), switched_off(IP_ASSIGNED, GATE)),
    )


FEATURE = ControllerFeature(
    name="Egress disabled",
    watched=(watched(EGRESSES, DisabledEgress),),
    units=(Unit(DisabledEgress, withdrawn_egress_status),),
    gate=GATE,
)
FEATURES = (FEATURE,)
