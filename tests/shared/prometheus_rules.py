"""What the chart has for Prometheus and Grafana: alerts, panels, and the series that their expressions name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promql_parser
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = Path(__file__).parents[2] / "build/charts/antrea"
RULES = CHART / "rules/antrea.yaml"
DASHBOARDS = CHART / "dashboards/prometheus"
HISTOGRAM = ("_bucket", "_sum", "_count")
OF_PROMETHEUS = {"up"}
ABSENT_AT_FIRST = {
    "antrea_agent_part_failure_count": "exists from the first failure on",
    "antrea_controller_part_failure_count": "exists from the first failure on",
    "antrea_agent_metric_failure_count": "exists from the first failure on",
    "antrea_agent_neighbour_probe_failure_count": "exists from the first failure on",
    "antrea_unreadable_object_count": "exists while there are such objects",
    "antrea_agent_fqdn_answer_dropped_count": "exists from the first answer of a reason on",
    "antrea_agent_gossip_dropped_packet_count": "exists from the first packet of a reason on",
    "antrea_agent_bgp_session_up": "exists while a BGPPolicy has a peer",
    "antrea_agent_bfd_session_up": "exists while a BGPPolicy has a peer with BFD",
    "antrea_agent_flow_record_lost_count": "exists while connections are exported",
}
"""Series that a program does not have in a lab without faults, and why; docs/metrics.md has the same."""


def alerts() -> list[dict[str, Any]]:
    """All alerts, in the order of the file."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> dict[str, str]:
    """The expression of each line of each panel, by dashboard, panel and letter."""
    return {
        f"{path.stem}: {panel['title']} {target['refId']}": target["expr"]
        for path in sorted(DASHBOARDS.glob("*.json"))
        for panel in json.loads(path.read_text())["panels"]
        for target in panel["targets"]
    }


def expressions() -> dict[str, str]:
    """Every expression, by the name of what has it."""
    return {rule["alert"]: rule["expr"] for rule in alerts()} | panels()


def series(expression: str) -> set[str]:
    """Names of series in an expression. Raises `ValueError` if it is not one."""
    return set(_names(promql_parser.parse(expression.replace("$node", ".*"))))


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, promql_parser.VectorSelector):
        yield str(node.name)
    for part in ("lhs", "rhs", "expr", "vector_selector", "vs"):
        if (below := getattr(node, part, None)) is not None:
            yield from _names(below)
    for argument in getattr(node, "args", ()):
        yield from _names(argument)
