"""Egress in the controller: the group of Pods that each Egress selects, and its address.

parity: pkg/controller/egress/controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.egress import Egress
from antrea.apis.egress_address import EGRESSES
from antrea.engine import Unit
from antrea.facts.egress import EgressRow
from antrea.facts.group import Group, GroupSelector
from antrea.features.admission import Watched
from antrea.features.controller import ControllerFeature
from antrea.features.egress.allocation import ALLOCATED, UNITS
from antrea.features.external_ip_pool.address import canonical
from antrea.features.grouping.selector import group_selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GROUPS = "egressgroups"


def egress_row(found: Egress) -> EgressRow:
    """An Egress by what the controller needs of it."""
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
    )


def egress_group(_: Facts, egress: EgressRow) -> Iterator[Group | GroupSelector]:
    """Named after its Egress."""
    selector = egress.selector
    if selector is not None:
        yield selector
    yield Group(GROUPS, egress.name, (selector.key,) if selector else (), egress.uid)


FEATURE = ControllerFeature(
    name="Egress",
    watched=(Watched(EGRESSES, Egress, EgressRow, egress_row),),
    units=(Unit(EgressRow, egress_group, yields=(Group, GroupSelector)), *UNITS),
    publishes=(GROUPS,),
    gate="Egress",
)
