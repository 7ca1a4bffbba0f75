"""What the agent counts, under upstream's names; only what has a true value.

parity: pkg/agent/metrics/prometheus.go
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from antrea.agent.agent_info import flow_counts
from antrea.errors import Unavailable
from antrea.facts.ovs import PodInterface
from antrea.outside.metrics import Metric, Sample

if TYPE_CHECKING:
    from antrea.agent.agent_view import AgentView

PODS = Metric(
    "antrea_agent_local_pod_count",
    "gauge",
    "STABLE",
    "Number of Pods on local Node which are managed by the Antrea Agent.",
)
FLOWS = Metric(
    "antrea_agent_ovs_total_flow_count", "gauge", "STABLE", "Total flow count of all OVS flow tables."
)
TABLE_FLOWS = Metric(
    "antrea_agent_ovs_flow_count",
    "gauge",
    "STABLE",
    "Flow count for each OVS flow table. The TableID and TableName are used as labels.",
)


async def agent_metrics(view: AgentView) -> str:
    """In Prometheus' format; without an answer of the switch, flows are left out."""
    text = PODS.text([Sample(len(view.facts.all(PodInterface)))])
    with contextlib.suppress(Unavailable):
        counts = await flow_counts(view)
        text += FLOWS.text([Sample(sum(counts.values()))])
        text += TABLE_FLOWS.text(
            Sample(counts[name], {"table_id": str(number), "table_name": name})
            for name, number in view.tables.items()
        )
    if view.membership:
        text += view.membership.metrics(view.facts)
    return text + view.operations.text()
