"""Row of an ExternalIPPool, with its ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.pool import ExternalIPPool
from antrea.apis.shown import one_line
from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.ip_range import Span, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.apis.crd.pool import IPRange

IDLE_SECONDS: Final = 10
"""How long no connection must have used an address of a pool that waits to go to a better Node."""
RANGES_VALID: Final = "RangesValid"
"""Type of the condition of a pool with ranges that are left out."""
MAX_NAMED: Final = 3
"""Maximum number of ranges that the condition names."""
MAX_REASON: Final = 120
"""Maximum number of characters of the reason for each."""
POOLS = "/apis/crd.antrea.io/v1beta1/externalippools"


class PoolRow(Fact, frozen=True):
    """An ExternalIPPool that exists, with its usable ranges."""

    name: str
    spans: tuple[Span, ...]
    uid: str = ""
    generation: int = 0
    gateway: str = ""
    """Router of its subnet, which is never allocated; empty if none."""
    unanswered: bool = False
    """Whether its status names a gateway that does not answer."""
    invalid: str = ""
    """Why ranges of it are left out; empty if none is."""
    reported_invalid: bool = False
    """Whether its status names ranges that are left out."""

    @property
    def key(self) -> str:
        return self.name


def spans_of(ranges: Iterable[IPRange], path: str = "spec.ipRanges") -> tuple[Span, ...]:
    """Parse ranges. Raises Invalid."""
    return tuple(
        span(pool_range.cidr, pool_range.start, pool_range.end, f"{path}[{index}]")
        for index, pool_range in enumerate(ranges)
    )


def pool_row(pool: ExternalIPPool) -> PoolRow:
    """Make the row of one pool; invalid ranges are left out, and named in its `invalid`."""
    spans: list[Span] = []
    invalid: list[str] = []
    for index, pool_range in enumerate(pool.spec.ip_ranges):
        try:
            spans.append(span(pool_range.cidr, pool_range.start, pool_range.end, f"spec.ipRanges[{index}]"))
        except Invalid as error:
            # it was stored before ranges were checked: nothing can lie in it
            invalid.append(one_line(str(error))[:MAX_REASON])
    meta, subnet = pool.metadata, pool.spec.subnet_info
    reported = {condition.type for condition in pool.status.conditions}
    return PoolRow(
        meta.name,
        tuple(spans),
        meta.uid,
        meta.generation,
        canonical(subnet.gateway) if subnet else "",
        bool(reported - {RANGES_VALID}),
        _named(invalid),
        RANGES_VALID in reported,
    )


def _named(invalid: list[str]) -> str:
    """The first few of these, and how many there are more."""
    left = len(invalid) - MAX_NAMED
    return "; ".join(invalid[:MAX_NAMED]) + (f"; and {left} more" if left > 0 else "")


WATCHED = (Watched(POOLS, ExternalIPPool, PoolRow, pool_row, fence="objects"),)
