"""Beacons while the gate is off in the controller: their status is no longer true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.beacon.beacon import PATH
from antrea.features.beacon.gate import GATE

from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import MANAGER, DisabledObject, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class DisabledBeacon(DisabledObject, frozen=True):
    """A Beacon that nothing acts on."""


def unseen_status(_: Facts, beacon: DisabledBeacon) -> Iterator[Status]:
    """Yield the status of a Beacon that the controller does not receive."""
    yield Status(path=beacon.path, kind="Beacon", manager=MANAGER, fields=(("seen", False),))


FEATURES = (
    ControllerFeature(
        name="Beacon disabled",
        watched=(watched(PATH, DisabledBeacon),),
        units=(Unit(DisabledBeacon, unseen_status),),
        gate=GATE,
    ),
)
