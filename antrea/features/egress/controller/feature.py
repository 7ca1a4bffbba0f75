"""Egress in the controller: the group of Pods that each Egress selects, and its addresses.

parity: pkg/controller/egress/controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.egress import Egress
from antrea.apis.egress_address import EGRESSES
from antrea.engine import Unit
from antrea.facts.egress import EgressRow
from antrea.facts.group import GroupSelector, PublishedGroup
from antrea.features.egress.controller import pool_gateway, selection
from antrea.features.egress.controller.allocation import ALLOCATED, UNITS
from antrea.features.egress.controller.selection import TYPES
from antrea.features.egress.spec import lists, unanswered
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.grouping.publication import GroupHead, head
from antrea.features.grouping.selector import group_selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GROUPS = "egressgroups"


def egress_rows(found: Egress) -> tuple[EgressRow, ...]:
    """One for each of its addresses."""
    one, listed = egress_row(found), lists(found.spec)
    silent = {canonical(row.egress_ip): row.unanswered for row in found.status.addresses}
    return tuple(
        msgspec.structs.replace(
            one, address=(address := canonical(ip)), pool=pool, slot=slot, of=len(listed),
            unanswered=silent.get(address, ""),
        )
        for slot, (ip, pool) in enumerate(listed)
    ) or (one,)  # fmt: skip


def egress_row(found: Egress) -> EgressRow:
    """An Egress by what the controller needs of it, with its one address."""
    applied, meta = found.spec.applied_to, found.metadata
    return EgressRow(
        meta.name,
        meta.uid,
        group_selector(pods=applied.pod_selector, namespaces=applied.namespace_selector),
        meta.generation,
        meta.creation_timestamp,
        found.spec.external_ip_pool,
        canonical(found.spec.egress_ip),
        next((one.status for one in found.status.conditions if one.type == ALLOCATED), ""),
        tuple(one.type for one in found.status.conditions if one.type in TYPES),
        unanswered=unanswered(found.status.conditions),
        lost=bool(found.status.conditions) and all(c.type != ALLOCATED for c in found.status.conditions),
    )


def egress_group(_: Facts, egress: EgressRow) -> Iterator[GroupHead | GroupSelector]:
    """Named after its Egress."""
    if egress.slot:
        return
    group = PublishedGroup(GROUPS, egress.name, egress.uid)
    if egress.selector is not None:
        yield egress.selector.with_parts((group,))
    yield head(group)


FEATURE = ControllerFeature(
    name="Egress",
    watched=(Watched(EGRESSES, Egress, EgressRow, egress_rows),),
    units=(
        Unit(EgressRow, egress_group, yields=(GroupSelector,)),
        *UNITS,
        *selection.UNITS,
        *pool_gateway.UNITS,
    ),
    publishes=(GROUPS,),
    gate="Egress",
)
FEATURES = (FEATURE,)
