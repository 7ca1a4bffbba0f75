"""A joined record as a line of the flow log.

parity: pkg/flowaggregator/flowlogger/logger.go, prettyprint.go
"""

from __future__ import annotations

import csv
import io
from operator import attrgetter
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
_ACTIONS: Final = dict(enumerate(("", "Allow", "Drop", "Reject")))
_TYPES: Final = dict(enumerate(("", "K8sNetworkPolicy", "AntreaNetworkPolicy", "AntreaClusterNetworkPolicy")))
_ASKED: Final = ("None", "Allow", "Drop", "Reject")


class _Columns:
    """Fields of a record, in order."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.count, self.values = len(fields), attrgetter(*fields)
        self._actions = [at for at, name in enumerate(fields) if name.endswith("rule_action")]
        self._types = [at for at, name in enumerate(fields) if name.endswith("policy_type")]
        self._protocol = fields.index("protocol_identifier")

    def worded(self, record: FlowRecord) -> list[str | int]:
        """With names in place of numbers."""
        values = [*self.values(record)]
        values[self._protocol] = _PROTOCOLS.get(values[self._protocol], values[self._protocol])
        for at in self._actions:
            values[at] = _ACTIONS.get(values[at], "Invalid")
        for at in self._types:
            values[at] = _TYPES.get(values[at], "Invalid")
        return values


_COLUMNS: Final = {False: _Columns(_FIELDS), True: _Columns(_WITH_REQUESTS)}


def log_line(record: FlowRecord, *, pretty: bool, requests: bool = False) -> str:
    """Format a record as one line of CSV without a line end, whatever names it has; `requests`: with those of HTTP."""
    columns = _COLUMNS[requests]
    values = columns.worded(record) if pretty else columns.values(record)
    text = ",".join(map(str, values))
    if text.isprintable() and text.count(",") == columns.count - 1 and '"' not in text and "\\" not in text:
        return text  # nothing to quote or to escape
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([one_line(str(value)) for value in values])
    return out.getvalue()


def passes(record: FlowRecord, filters: tuple[LogFilter, ...]) -> bool:
    """Whether one of the filters takes the record; without any, all are taken."""
    return not filters or any(_takes(log_filter, record) for log_filter in filters)


def _takes(log_filter: LogFilter, record: FlowRecord) -> bool:
    pairs = (
        (log_filter.ingress_network_policy_rule_actions, record.ingress_network_policy_rule_action),
        (log_filter.egress_network_policy_rule_actions, record.egress_network_policy_rule_action),
    )
    return all(not wanted or (done < len(_ASKED) and _ASKED[done] in wanted) for wanted, done in pairs)
