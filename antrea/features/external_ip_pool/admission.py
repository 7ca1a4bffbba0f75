"""What an ExternalIPPool may hold: ranges of one subnet that overlap with no other, of any pool.

parity: pkg/controller/externalippool/validate.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.pool import ExternalIPPool
from antrea.errors import Invalid
from antrea.features.admission import Webhook
from antrea.features.external_ip_pool.pool import WATCHED, PoolRow, pool_row, spans_of
from antrea.features.ip_range import Taken, check_inside, check_kept, subnet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.engine import Facts
    from antrea.features.admission import Review, Steps
    from antrea.features.ip_range import Span

__all__ = ["WATCHED", "WEBHOOKS"]


def validate_pool(facts: Facts, review: Review[ExternalIPPool]) -> Steps:
    """Raises Invalid."""
    spec = review.new.spec
    info = spec.subnet_info
    within = subnet(info.gateway, info.prefix_length) if info else None
    spans = spans_of(spec.ip_ranges)
    check_inside(spans, within)
    _check_alone(facts, review.new.metadata.name, spans)
    if review.operation == "UPDATE":
        check_kept(pool_row(review.before).spans, spans)
    yield from ()


def _check_alone(facts: Facts, name: str, spans: Sequence[Span]) -> None:
    others = [(pool.name, span) for pool in facts.all(PoolRow) if pool.name != name for span in pool.spans]
    taken = Taken(span for _, span in others)
    for index, one in enumerate(spans):
        number = taken.first_over(one)
        if number is not None:
            pool, other = others[number]
            raise Invalid(
                f"spec.ipRanges[{index}]",
                f"range [{one.text}] overlaps with range [{other.text}] of ExternalIPPool {pool}",
            )


WEBHOOKS = (
    Webhook(
        "externalippoolvalidator.antrea.io", "/validate/externalippool", ("CREATE", "UPDATE"), "crd.antrea.io",
        ("v1beta1",), "externalippools", "Cluster", ExternalIPPool,
        "ranges of one family each, inside the subnet, overlapping with none of any pool; none may go or change",
        validate=validate_pool, gates=("Egress", "ServiceExternalIP"), reads=(PoolRow,), anew=WATCHED,
    ),
)  # fmt: skip
