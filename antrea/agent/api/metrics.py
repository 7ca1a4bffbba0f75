"""Metrics of the agent, under upstream's names; only those that have a true value.

parity: pkg/agent/metrics/prometheus.go
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from antrea.agent.api.agent_info import flow_counts
from antrea.errors import Unavailable
from antrea.facts.ovs import PodInterface
from antrea.openflow.meter import POD_DNS_METERS, PacketInMeter
from antrea.outside.isolation import failures
from antrea.outside.kube.odd_object import odd_object_metrics
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.neighbour.probe_failure import failed_probe_metrics
from antrea.outside.vswitch import packet_channel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antrea.agent.api.view import AgentView
    from antrea.features.framework.agent_part import Part

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
MAX_TRACKED = Metric(
    "antrea_agent_conntrack_max_connection_count", "gauge", "ALPHA", "Size of the conntrack table."
)
METERS = {
    PacketInMeter.NETWORK_POLICY: "PacketInMeterNetworkPolicy",
    PacketInMeter.DNS: "PacketInMeterDNSInterception",
    PacketInMeter.UNSERVED_PORT: "PacketInMeterUnservedPort",
    POD_DNS_METERS: "PacketInMeterDNSInterceptionOfPod",
}
"""Values of the label `meter_id`, upstream's and additional ones; all meters of single Pods share one."""
_METER, _BAND = re.compile(r"meter:(\d+) "), re.compile(r"0: packet_count:(\d+) ")


UNREAD = Metric(
    "antrea_agent_metric_failure_count",
    "counter",
    "ALPHA",
    "Number of times that metrics could not be read, so that the answer was without them, by source.",
)


async def agent_metrics(view: AgentView) -> str:
    """Render all metrics in Prometheus' format; a source that could not be read is left out and counted."""
    text = PODS.text([Sample(len(view.facts.all(PodInterface)))])
    text += view.starts.text() + odd_object_metrics() + failed_probe_metrics() + view.idle_metrics
    text += "".join(_part_metrics(view, part) for part in view.parts) + view.isolation.text(FAILURES)
    text += await _read(view, "flows", _flows)
    text += await _read(view, "meters", _meters)
    text += await _read(view, "packet overflow", _overflow)
    text += await _read(view, "conntrack", _connections)
    if view.unread_metrics:
        text += UNREAD.text(Sample(count, {"source": name}) for name, count in view.unread_metrics.items())
    return text + view.operations.text() + view.packets()


async def _read(view: AgentView, source: str, metrics: Callable[[AgentView], Awaitable[str]]) -> str:
    try:
        return await metrics(view)
    except Unavailable as error:
        _note_unread(view, source, error)
        return ""


def _note_unread(view: AgentView, source: str, error: Exception) -> None:
    view.unread_metrics[source] += 1
    if view.unread_metrics[source] == 1:
        log.error(
            "Failed to collect metrics; later failures of the source are only counted",
            error=error, source=source, metric=UNREAD.name,
        )  # fmt: skip


async def _flows(view: AgentView) -> str:
    counts = await flow_counts(view)
    return FLOWS.text([Sample(sum(counts.values()))]) + TABLE_FLOWS.text(
        Sample(counts[name], {"table_id": str(number), "table_name": name})
        for name, number in view.tables.items()
    )


async def _meters(view: AgentView) -> str:
    drops = await _meter_drops(view)
    return METER_DROPS.text(Sample(drops.get(int(n), 0), {"meter_id": label}) for n, label in METERS.items())


async def _overflow(view: AgentView) -> str:
    return packet_channel.OVERFLOW.text([Sample(await view.overflow())]) if view.overflow else ""


async def _connections(view: AgentView) -> str:
    if not view.connections:
        return ""
    usage = await view.connections()
    return TRACKED.text([Sample(usage.tracked)]) + MAX_TRACKED.text([Sample(usage.most)])


def _part_metrics(view: AgentView, part: Part) -> str:
    """Return the metrics of a part; empty if it fails, so that those of others are shown."""
    try:
        return part.metrics()
    except Exception as error:  # noqa: BLE001 (the metrics of one part leave those of the others)
        _note_unread(view, type(part).__name__, error)
        return ""


async def _meter_drops(view: AgentView) -> dict[int, int]:
    """Count drops by meter number, with the meters of single Pods together. Raises Unavailable."""
    meter, drops = 0, Counter[int]()
    async for line in view.ofctl.lines("meter-stats"):
        if head := _METER.match(line):
            meter = min(int(head[1]), POD_DNS_METERS)
        elif band := _BAND.match(line):
            drops[meter] += int(band[1])
    return drops
