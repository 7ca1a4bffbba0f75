"""Kind Beacon, and how the API server serves it."""

from __future__ import annotations

from antrea.features.beacon.beacon import Beacon
from antrea.features.beacon.gate import GATE

from antrea.apis.crd.definition import AGE, Column, Crd, Version

_COLUMNS = (Column("IP", "string", ".spec.ip", "Address of the Beacon."), AGE)
CRDS = (Crd("beacons", ("bcn",), "Cluster", (Version("v1alpha1", Beacon, _COLUMNS, status=True),), (GATE,)),)
