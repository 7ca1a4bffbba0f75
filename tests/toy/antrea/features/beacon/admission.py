"""What a Beacon may be: its address must be one."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.features.beacon.beacon import BeaconObject

from antrea.errors import Invalid
from antrea.features.framework.admission import Webhook

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps


def validate_beacon(_: Facts, review: Review[BeaconObject]) -> Steps:
    """Raises Invalid."""
    yield from ()
    try:
        ip_address(review.new.spec.ip)
    except ValueError as error:
        raise Invalid("spec.ip", str(error)) from error


WEBHOOKS = (
    Webhook(
        "beacons.toy.antrea.io", "/validate/beacon", ("CREATE", "UPDATE"), "toy.antrea.io", ("v1",), "beacons",
        "Cluster", BeaconObject, "spec.ip is an address", validate=validate_beacon,
    ),
)  # fmt: skip
