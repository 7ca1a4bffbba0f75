"""Whether the gateway of a pool's VLAN answers, as the Nodes with its addresses report in their Egresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import FencedLeadership
from antrea.features.egress.spec import ANSWERS
from antrea.features.external_ip_pool.pool import POOLS, PoolRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

MANAGER: Final = "antrea-controller-gateway"


def pool_gateway(facts: Facts, pool: PoolRow) -> Iterator[Status]:
    """Yield what its Egresses report; of several Nodes the first Egress by name."""
    if facts.get(FencedLeadership) is None:
        return
    reporting = facts.by(EgressRow, "unanswered", pool.name)
    if reporting:
        condition = Condition(ANSWERS, "False", reason="NoAnswer", message=reporting[0].unanswered)
    elif pool.unanswered:
        condition = Condition(ANSWERS)
    else:
        return
    yield Status(path=f"{POOLS}/{pool.name}", kind="ExternalIPPool", manager=MANAGER, conditions=(condition,))


UNITS = (Unit(PoolRow, pool_gateway),)
