"""Metrics of flow export under upstream's names, which are 0 while it is off: dashboards and upstream's TestPrometheus expect them.

parity: pkg/agent/metrics/prometheus.go
"""

from __future__ import annotations

from antrea.outside.log.metrics import Metric

TRACKED = Metric(
    "antrea_agent_conntrack_antrea_connection_count",
    "gauge",
    "ALPHA",
    "Number of connections in the Antrea ZoneID of the conntrack table, as flow export reads them.",
)
DENIED = Metric(
    "antrea_agent_denied_connection_count",
    "gauge",
    "ALPHA",
    "Number of denied connections detected by Flow Exporter deny connections tracking.",
)
CONNECTED = Metric(
    "antrea_agent_flow_collector_reconnection_count",
    "counter",
    "ALPHA",
    "Number of re-connections between Flow Exporter and flow collector.",
)
METRICS = (TRACKED, DENIED, CONNECTED)
