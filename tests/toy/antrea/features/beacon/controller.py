"""Beacons in the controller: each has a status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.beacon.beacon import PATH, WATCHED, BeaconAddress
from antrea.features.beacon.gate import GATE

from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.framework.controller_feature import ControllerFeature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


def status(_: Facts, beacon: BeaconAddress) -> Iterator[Status]:
    """The controller has seen it."""
    path = f"{PATH}/{beacon.name}"
    yield Status(path=path, kind="Beacon", manager="antrea-controller", fields=(("seen", True),))


FEATURES = (ControllerFeature(name=GATE, watched=WATCHED, units=(Unit(BeaconAddress, status),), gate=GATE),)
