"""What others need to know of an ExternalIPPool: its ranges, and in which version of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.pool import ExternalIPPool
from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.ip_range import Span, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.apis.crd.pool import IPRange

GATES = ("Egress", "ServiceExternalIP")
"""Features that take addresses of pools."""
POOLS = "/apis/crd.antrea.io/v1beta1/externalippools"


class PoolRow(Fact, frozen=True):
    """An ExternalIPPool that exists, with its usable ranges."""

    name: str
    spans: tuple[Span, ...]
    uid: str = ""
    generation: int = 0
    gateway: str = ""
    """Router of its subnet, which is never given; empty: none."""
    unanswered: bool = False
    """Whether its status names a gateway that does not answer."""

    @property
    def key(self) -> str:
        return self.name


def spans_of(ranges: Iterable[IPRange], path: str = "spec.ipRanges") -> tuple[Span, ...]:
    """Raises Invalid."""
    return tuple(span(one.cidr, one.start, one.end, f"{path}[{index}]") for index, one in enumerate(ranges))


def pool_row(pool: ExternalIPPool) -> PoolRow:
    """The row of one pool; ranges that cannot be read are left out."""
    spans: list[Span] = []
    for one in pool.spec.ip_ranges:
        try:
            spans += spans_of((one,))
        except Invalid:
            # it was stored before ranges were checked: nothing can lie in it
            continue
    meta, subnet = pool.metadata, pool.spec.subnet_info
    gateway = canonical(subnet.gateway) if subnet else ""
    return PoolRow(meta.name, tuple(spans), meta.uid, meta.generation, gateway, bool(pool.status.conditions))


WATCHED = (Watched(POOLS, ExternalIPPool, PoolRow, pool_row),)
