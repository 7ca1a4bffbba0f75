"""Resources of the aggregated API for Egresses: the Pods of each, and its traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis import controlplane as cp
from antrea.apis import stats
from antrea.apis.resource import Members
from antrea.features.framework.api_resource import (
    READ,
    WATCHED,
    controlplane_resource,
    count_columns,
    stats_resource,
)

if TYPE_CHECKING:
    import msgspec

    from antrea.apis.meta import ObjectMetadata


def egress_patch(meta: ObjectMetadata, added: tuple[Any, ...], removed: tuple[Any, ...]) -> msgspec.Struct:
    """Return the object of a MODIFIED event of an EgressGroup."""
    return cp.EgressGroupPatch(
        name=meta.name,
        uid=meta.uid,
        added_group_members=added or None,
        removed_group_members=removed or None,
    )


RESOURCES = (
    controlplane_resource(
        "egressgroups", "egressgroup", cp.EgressGroup, WATCHED, members=Members(egress_patch, by_node=True)
    ),
    stats_resource(
        "egressstats",
        "egressstats",
        stats.EgressStats,
        READ,
        columns=count_columns("Egress", "packets", "bytes"),
    ),
)
