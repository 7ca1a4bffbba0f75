"""Resources of the aggregated API for groups: their members, and the groups that have a Pod or an address."""

from __future__ import annotations

from functools import partial

from antrea.apis import controlplane_report as report
from antrea.features.framework.api_resource import GET, controlplane_resource

_question = partial(controlplane_resource, verbs=GET, stored=False, columns=())
RESOURCES = (
    _question("clustergroupmembers", "clustergroupmembers", report.ClusterGroupMembers),
    _question("groupassociations", "groupassociation", report.GroupAssociation, namespaced=True),
    _question("groupmembers", "groupmembers", report.GroupMembers, namespaced=True),
    _question("ipgroupassociations", "ipgroupassociation", report.IPGroupAssociation),
)
