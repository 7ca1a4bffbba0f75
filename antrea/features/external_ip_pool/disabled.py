"""ExternalIPPools while all gates of those that take their addresses are off in the controller: none is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.external_ip_pool.crd import GATES
from antrea.features.external_ip_pool.pool import POOLS
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import MANAGER, DisabledObject, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class DisabledPool(DisabledObject, frozen=True):
    """An ExternalIPPool."""


def pool_status(_: Facts, pool: DisabledPool) -> Iterator[Status]:
    """Yield the status of a pool without allocations."""
    yield Status(
        path=pool.path,
        kind="ExternalIPPool",
        manager=MANAGER,
        fields=(("usage.total", 0), ("usage.used", 0)),
    )


FEATURE = ControllerFeature(
    name="ExternalIPPool disabled",
    watched=(watched(POOLS, DisabledPool),),
    units=(Unit(DisabledPool, pool_status),),
    gate=GATES,
)
FEATURES = (FEATURE,)
