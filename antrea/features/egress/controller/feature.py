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
from antrea.features.egress.controller import pool_gateway, port_block, selection
from antrea.features.egress.controller.allocation import ALLOCATED, UNITS
from antrea.features.egress.controller.selection import TYPES
from antrea.features.egress.port_block import CONDITION, blocks_of
from antrea.features.egress.preference import PORTS, survival
from antrea.features.egress.spec import requested_entries, unanswered
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.grouping.publication import GroupHead, head
from antrea.features.grouping.selector import group_selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GROUPS = "egressgroups"


def egress_rows(stored: Egress) -> tuple[EgressRow, ...]:
    """Make a row for each address of an Egress."""
    single, listed = egress_row(stored), requested_entries(stored.spec)
    silent = {canonical(row.egress_ip): row.unanswered for row in stored.status.addresses}
    return tuple(
        msgspec.structs.replace(
            single, address=(address := canonical(ip)), pool=pool, slot=slot, of=len(listed),
            unanswered=silent.get(address, ""),
        )
        for slot, (ip, pool) in enumerate(listed)
    ) or (single,)  # fmt: skip


def egress_row(stored: Egress) -> EgressRow:
    """Make the row of an Egress with its one address."""
    applied, meta = stored.spec.applied_to, stored.metadata
    return EgressRow(
        meta.name,
        meta.uid,
        group_selector(pods=applied.pod_selector, namespaces=applied.namespace_selector),
        meta.generation,
        meta.creation_timestamp,
        stored.spec.external_ip_pool,
        canonical(stored.spec.egress_ip),
        next((condition.status for condition in stored.status.conditions if condition.type == ALLOCATED), ""),
        tuple(
            condition.type for condition in stored.status.conditions if condition.type in (*TYPES, CONDITION)
        ),
        unanswered=unanswered(stored.status.conditions),
        lost=bool(stored.status.conditions) and all(c.type != ALLOCATED for c in stored.status.conditions),
        survives=survival(stored) == PORTS,
        blocks=blocks_of(stored.status),
    )


def egress_group(_: Facts, egress: EgressRow) -> Iterator[GroupHead | GroupSelector]:
    """Yield the group, which is named after its Egress."""
    if egress.slot:
        return
    group = PublishedGroup(GROUPS, egress.name, egress.uid)
    if egress.selector is not None:
        yield egress.selector.with_parts((group,))
    yield head(group)


FEATURE = ControllerFeature(
    name="Egress",
    watched=(Watched(EGRESSES, Egress, EgressRow, egress_rows, fence="objects"),),
    units=(
        Unit(EgressRow, egress_group, yields=(GroupSelector,)),
        *UNITS,
        *selection.UNITS,
        *pool_gateway.UNITS,
        *port_block.UNITS,
    ),
    publishes=(GROUPS,),
    gate="Egress",
)
FEATURES = (FEATURE,)
