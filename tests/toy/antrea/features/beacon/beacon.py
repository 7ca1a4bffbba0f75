"""Beacons as the API has them, and what is kept of one."""

from __future__ import annotations

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched

PATH = "/apis/toy.antrea.io/v1/beacons"


class BeaconSpec(CoreStruct, frozen=True):
    ip: str = ""


class BeaconObject(CoreStruct, frozen=True):
    """What is read of the object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BeaconSpec = BeaconSpec()


class Beacon(Fact, frozen=True):
    """A Beacon."""

    name: str
    uid: str
    ip: str

    @property
    def key(self) -> str:
        return self.name


def beacon_row(found: BeaconObject) -> Beacon:
    return Beacon(found.metadata.name, found.metadata.uid, found.spec.ip)


WATCHED = (Watched(PATH, BeaconObject, Beacon, beacon_row),)
