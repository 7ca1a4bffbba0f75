"""Egress in the controller: the group of Pods that each Egress selects.

parity: pkg/controller/egress/controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.egress import Egress
from antrea.engine import Unit
from antrea.facts.egress import EgressRow
from antrea.facts.group import Group, GroupSelector
from antrea.features.admission import Watched
from antrea.features.controller import ControllerFeature
from antrea.features.grouping.selector import group_selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GROUPS = "egressgroups"


def egress_row(found: Egress) -> EgressRow:
    """An Egress by what the controller needs of it."""
    applied = found.spec.applied_to
    return EgressRow(
        found.metadata.name,
        found.metadata.uid,
        group_selector(pods=applied.pod_selector, namespaces=applied.namespace_selector),
    )


def egress_group(_: Facts, egress: EgressRow) -> Iterator[Group | GroupSelector]:
    """Named after its Egress."""
    selector = egress.selector
    if selector is not None:
        yield selector
    yield Group(GROUPS, egress.name, (selector.key,) if selector else (), egress.uid)


FEATURE = ControllerFeature(
    name="Egress",
    watched=(Watched("/apis/crd.antrea.io/v1beta1/egresses", Egress, EgressRow, egress_row),),
    units=(Unit(EgressRow, egress_group, yields=(Group, GroupSelector)),),
    publishes=(GROUPS,),
    gate="Egress",
)
