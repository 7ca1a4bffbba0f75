"""Every resource of the aggregated API, by group; features fill the stores of these rows.

A feature declares its resources in module `api_resource` of its folder.
"""

from __future__ import annotations

from itertools import chain

from antrea.apis import controlplane_report as report
from antrea.apis import stats, system
from antrea.apis.resource import Column, Resource, Subresource
from antrea.features import FEATURES
from antrea.features.framework.api_resource import CREATE, GET, READ, controlplane_resource, stats_resource
from antrea.features.framework.plug import declared


def _pods(row: stats.MulticastGroup, shown: int = 3) -> str:
    names = ",".join(f"{pod.namespace}/{pod.name}" for pod in row.pods[:shown])
    more = len(row.pods) - shown
    return f"{names} + {more} more..." if more > 0 else names or "<none>"


SUPPORT_BUNDLES = Resource(
    system.GROUP, system.VERSION, "supportbundles", "supportbundle", system.SupportBundle,
    ("create", "delete", "get"), stored=False, columns=(),
    subresources=(Subresource("download", system.SupportBundle, GET),),
)  # fmt: skip
"""Resource that agents serve, too, each at its own port."""
OTHER_RESOURCES: tuple[Resource, ...] = (
    controlplane_resource(
        "nodestatssummaries", "nodestatssummary", report.NodeStatsSummary, CREATE, stored=False, columns=()
    ),
    stats_resource(
        "multicastgroups", "multicastgroup", stats.MulticastGroup, READ,
        columns=(
            Column("Group", "string", lambda row: row.metadata.name, "name", "IP of multicast group."),
            Column("Pods", "string", _pods, "", "List of Pods that has joined the multicast group."),
        ),
    ),
    Resource(
        system.GROUP, system.VERSION, "controllerinfos", "controllerinfo", system.AntreaControllerInfo, READ
    ),
    SUPPORT_BUNDLES,
)  # fmt: skip
"""Resources that no folder of a feature has: of the programs themselves, of several features, and of what is not built."""
RESOURCES: tuple[Resource, ...] = tuple(
    sorted(
        (
            *OTHER_RESOURCES,
            *chain.from_iterable(declared(FEATURES, "api_resource", Resource, "RESOURCES").values()),
        ),
        key=lambda row: (row.group, row.plural),
    )
)
"""All resources, sorted by group and plural, as discovery lists them."""
if len({(row.group, row.plural) for row in RESOURCES}) < len(RESOURCES):
    raise ValueError("a resource of the aggregated API is declared twice")
