"""Admission of Beacons: `spec.ip` must be an address."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.features.beacon.beacon import Beacon
from antrea.features.beacon.gate import GATE

from antrea.errors import Invalid
from antrea.features.framework.admission import Webhook

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps


def validate_beacon(_: Facts, review: Review[Beacon]) -> Steps:
    """Raises Invalid."""
    yield from ()
    try:
        ip_address(review.new.spec.ip)
    except ValueError as error:
        raise Invalid("spec.ip", str(error)) from error


WEBHOOKS = (
    Webhook(
        "beaconvalidator.antrea.io", "/validate/beacon", ("CREATE", "UPDATE"), "crd.antrea.io", ("v1alpha1",), "beacons",
        "Cluster", Beacon, "spec.ip is an address", validate=validate_beacon, gates=(GATE,),
    ),
)  # fmt: skip
