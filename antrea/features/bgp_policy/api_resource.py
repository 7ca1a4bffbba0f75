"""Resource of the aggregated API for what Nodes advertise by BGP: agents post it, the controller writes conditions."""

from __future__ import annotations

from antrea.apis import controlplane_report as report
from antrea.features.framework.api_resource import CREATE, controlplane_resource

SUMMARIES = "nodebgpsummaries"
RESOURCES = (
    controlplane_resource(
        SUMMARIES, "nodebgpsummary", report.NodeBgpSummary, CREATE, stored=False, columns=()
    ),
)
