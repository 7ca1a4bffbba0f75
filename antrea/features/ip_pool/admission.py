"""Validation of an IPPool's content and deletion.

parity: pkg/controller/ipam/validate.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.pool import IPPool
from antrea.errors import Invalid
from antrea.features.external_ip_pool.pool import spans_of
from antrea.features.framework.admission import Webhook
from antrea.features.framework.ip_range import check_inside, check_kept, subnet

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps


def validate_pool(_: Facts, review: Review[IPPool]) -> Steps:
    """Validate a pool. Raises Invalid."""
    if review.operation == "DELETE":
        if review.before.status.ip_addresses:
            raise Invalid("status.ipAddresses", "IPPool in use cannot be deleted")
        return
    spec = review.new.spec
    within = subnet(spec.subnet_info.gateway, spec.subnet_info.prefix_length)
    spans = spans_of(spec.ip_ranges)
    check_inside(spans, within)
    if review.operation == "UPDATE":
        check_kept(spans_of(review.before.spec.ip_ranges), spans)
    yield from ()


WEBHOOKS = (
    Webhook(
        "ippoolvalidator.antrea.io", "/validate/ippool", ("CREATE", "UPDATE", "DELETE"), "crd.antrea.io",
        ("v1beta1",), "ippools", "Cluster", IPPool,
        "each range has one IP family, is in the subnet and does not overlap with others; ranges cannot be removed or changed; a pool in use cannot be deleted",
        validate=validate_pool, gates=("AntreaIPAM",),
    ),
)  # fmt: skip
