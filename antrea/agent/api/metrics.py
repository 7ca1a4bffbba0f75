"""What the agent counts, under upstream's names; only what has a true value.

parity: pkg/agent/metrics/prometheus.go
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from antrea.agent.api.agent_info import flow_counts
from antrea.errors import Unavailable
from antrea.facts.ovs import PodInterface
from antrea.openflow.meter import PacketInMeter
from antrea.outside.isolation import failures
from antrea.outside.kube.odd_object import odd_object_metrics
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.neighbour.probe_failure import failed_probe_metrics
from antrea.outside.vswitch import packet_channel

if TYPE_CHECKING:
    from antrea.agent.api.view import AgentView
    from antrea.agent.part import Part

log = klog.logger(__name__)

FAILURES = failures("agent")
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

METER_DROPS = Metric(
    "antrea_agent_ovs_meter_packet_dropped_count",
    "gauge",
    "ALPHA",
    "Number of packets dropped by OVS meter. The value is greater than 0 when the packets exceed the rate-limit.",
)
TRACKED = Metric(
    "antrea_agent_conntrack_total_connection_count",
    "gauge",
    "ALPHA",
    "Number of connections in the conntrack table.",
)
MOST_TRACKED = Metric(
    "antrea_agent_conntrack_max_connection_count", "gauge", "ALPHA", "Size of the conntrack table."
)
METERS = {
    PacketInMeter.NETWORK_POLICY: "PacketInMeterNetworkPolicy",
    PacketInMeter.UNSERVED_PORT: "PacketInMeterUnservedPort",
}
"""Labels, upstream's and ours."""
_METER, _BAND = re.compile(r"meter:(\d+) "), re.compile(r"0: packet_count:(\d+) ")


async def agent_metrics(view: AgentView) -> str:
    """In Prometheus' format; without an answer of the switch, flows are left out."""
    text = PODS.text([Sample(len(view.facts.all(PodInterface)))])
    text += view.starts.text() + odd_object_metrics() + failed_probe_metrics() + view.idle_metrics
    text += "".join(map(_part_metrics, view.parts)) + view.isolation.text(FAILURES)
    with contextlib.suppress(Unavailable):
        counts = await flow_counts(view)
        text += FLOWS.text([Sample(sum(counts.values()))])
        text += TABLE_FLOWS.text(
            Sample(counts[name], {"table_id": str(number), "table_name": name})
            for name, number in view.tables.items()
        )
        drops = await _meter_drops(view)
        text += METER_DROPS.text(
            Sample(drops.get(int(n), 0), {"meter_id": label}) for n, label in METERS.items()
        )
    if view.overflow:
        with contextlib.suppress(Unavailable):
            text += packet_channel.OVERFLOW.text([Sample(await view.overflow())])
    if view.connections:
        with contextlib.suppress(Unavailable):
            usage = await view.connections()
            text += TRACKED.text([Sample(usage.tracked)]) + MOST_TRACKED.text([Sample(usage.most)])
    return text + view.operations.text() + view.packets()


def _part_metrics(part: Part) -> str:
    """Metrics of a part; none where it fails, so that those of others are shown."""
    try:
        return part.metrics()
    except Exception as error:
        log.error("Failed to collect metrics of a part", error=error, part=type(part).__name__)
        return ""


async def _meter_drops(view: AgentView) -> dict[int, int]:
    """By the number of the meter. Raises Unavailable."""
    meter, found = 0, dict[int, int]()
    async for line in view.ofctl.lines("meter-stats"):
        if head := _METER.match(line):
            meter = int(head[1])
        elif band := _BAND.match(line):
            found[meter] = int(band[1])
    return found
