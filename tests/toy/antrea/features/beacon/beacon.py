"""Beacons as the API has them, and what is kept of one."""

from __future__ import annotations

from typing import Annotated

from antrea.apis.crd.part import Address, CrdStruct, Metadata
from antrea.apis.schema import doc
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched

PATH = "/apis/crd.antrea.io/v1alpha1/beacons"


class BeaconSpec(CrdStruct, frozen=True):
    """Address of a Beacon."""

    ip: Annotated[Address, doc("Address that leads to the Node.")]


class BeaconStatus(CrdStruct, frozen=True):
    """State of a Beacon."""

    seen: Annotated[bool, doc("Whether the controller has received it.")] = False


class Beacon(CrdStruct, frozen=True):
    """An address that leads to the Node."""

    spec: BeaconSpec
    metadata: Metadata = Metadata()
    status: BeaconStatus = BeaconStatus()


class BeaconAddress(Fact, frozen=True):
    """Address of a Beacon."""

    name: str
    uid: str
    ip: str

    @property
    def key(self) -> str:
        return self.name


def beacon_row(stored: Beacon) -> BeaconAddress:
    """Make the row of an object."""
    return BeaconAddress(stored.metadata.name, stored.metadata.uid, stored.spec.ip)


WATCHED = (Watched(PATH, Beacon, BeaconAddress, beacon_row),)
