"""A joined record as a line of the flow log.

parity: pkg/flowaggregator/flowlogger/logger.go, prettyprint.go
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from antrea.apis.flow import FlowRecord
    from antrea.config.flow_aggregator import LogFilter

_FIELDS: Final = (
    "flow_start_seconds", "flow_end_seconds", "source_ip", "destination_ip", "source_transport_port",
    "destination_transport_port", "protocol_identifier", "source_pod_name", "source_pod_namespace", "source_node_name",
    "destination_pod_name", "destination_pod_namespace", "destination_node_name", "destination_cluster_ip",
    "destination_service_ip", "destination_service_port", "destination_service_port_name",
    "ingress_network_policy_name", "ingress_network_policy_namespace", "ingress_network_policy_rule_name",
    "ingress_network_policy_rule_action", "ingress_network_policy_type", "egress_network_policy_name",
    "egress_network_policy_namespace", "egress_network_policy_rule_name", "egress_network_policy_rule_action",
    "egress_network_policy_type", "egress_name", "egress_ip", "egress_node_name",
)  # fmt: skip
_WITH_REQUESTS: Final = (*_FIELDS[:-1], "app_protocol_name", "http_vals", _FIELDS[-1])
_PROTOCOLS: Final = {1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 58: "IPv6-ICMP", 132: "SCTP"}
_ACTIONS: Final = ("", "Allow", "Drop", "Reject")
_TYPES: Final = ("", "K8sNetworkPolicy", "AntreaNetworkPolicy", "AntreaClusterNetworkPolicy")
_ASKED: Final = ("None", "Allow", "Drop", "Reject")


def log_line(record: FlowRecord, *, pretty: bool, requests: bool = False) -> str:
    """Of CSV, without an end; one line, whatever names a record has; `requests`: with those of HTTP."""
    fields = _WITH_REQUESTS if requests else _FIELDS
    values = [_shown(name, getattr(record, name), pretty=pretty) for name in fields]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def _shown(name: str, value: str | int, *, pretty: bool) -> str | int:
    if isinstance(value, str):
        return one_line(value)
    if not pretty:
        return value
    if name == "protocol_identifier":
        return _PROTOCOLS.get(value, str(value))
    if name.endswith("rule_action"):
        return _ACTIONS[value] if value < len(_ACTIONS) else "Invalid"
    if name.endswith("policy_type"):
        return _TYPES[value] if value < len(_TYPES) else "Invalid"
    return value


def passes(record: FlowRecord, filters: tuple[LogFilter, ...]) -> bool:
    """Whether one of the filters takes the record; without any, all are taken."""
    return not filters or any(_takes(one, record) for one in filters)


def _takes(one: LogFilter, record: FlowRecord) -> bool:
    pairs = (
        (one.ingress_network_policy_rule_actions, record.ingress_network_policy_rule_action),
        (one.egress_network_policy_rule_actions, record.egress_network_policy_rule_action),
    )
    return all(not asked or (done < len(_ASKED) and _ASKED[done] in asked) for asked, done in pairs)
