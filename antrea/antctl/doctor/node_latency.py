"""Round-trip times between Nodes: which Nodes report none, who does not answer, and what is above the threshold."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.annotation import LATENCY_THRESHOLD
from antrea.apis.shown import one_line
from antrea.config.shape import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHECK = "node-latency"
MAX_FINDINGS = 20
"""Findings; the last one counts the rest."""
MONITOR = "/apis/crd.antrea.io/v1alpha1/nodelatencymonitors/default"
FIGURES = "/apis/stats.antrea.io/v1alpha1/nodelatencystats"
SHOW = "antctl get nodelatencystats"
REPORT = 30.0
"""Seconds beside the interval after which each Node that can report has done so: agents report every 11 s."""
LOST = 2
"""Intervals without an answer."""


def node_latency(kubernetes: Server, nodes: Sequence[str]) -> Iterator[Finding]:
    """Findings, while there is a NodeLatencyMonitor; `nodes` have an agent. Raises Failure."""
    try:
        monitor = ask(kubernetes, MONITOR, {})
    except ErrorResponse as error:
        if error.status != 404:
            yield Finding("", "error", CHECK, f"NodeLatencyMonitor: {error.format_message()}", "")
        return
    try:
        reports = ask(kubernetes, FIGURES, {})["items"]
    except ErrorResponse as error:
        yield Finding("", "error", CHECK, f"NodeLatencyStats: {error.format_message()}", "")
        return
    findings = list(islice(judged(monitor, reports, nodes), MAX_FINDINGS + 1))
    if len(findings) > MAX_FINDINGS:
        findings[MAX_FINDINGS:] = [
            Finding("", "warning", CHECK, f"there are more than {MAX_FINDINGS} of them", SHOW)
        ]
    yield from findings


def judged(
    monitor: Mapping[str, Any], reports: Sequence[Mapping[str, Any]], nodes: Sequence[str]
) -> Iterator[Finding]:
    """Find missing and slow answers in the reports of agents; a single Node has nothing to report."""
    interval = float(monitor.get("spec", {}).get("pingIntervalSeconds", 60))
    limit = _threshold(monitor)
    by_node = {report["metadata"]["name"]: report for report in reports}
    for node in nodes if len(nodes) > 1 else ():
        if not by_node.get(node, {}).get("peerNodeLatencyStats"):
            text = f"Node {node} reports no round-trip times, as NodeLatencyMonitor default asks of it: its gate is off, it does not reach the controller, or began less than {REPORT:g} s ago"
            yield Finding("", "warning", CHECK, text, f"kubectl get aai {node} -o yaml")
    for node, report in by_node.items():
        for peer in report.get("peerNodeLatencyStats", ()):
            for target in peer.get("targetIPLatencyStats", ()):
                if why := _slow(target, interval, limit):
                    text = f"Node {node} to Node {peer.get('nodeName', '')} ({target.get('targetIP', '')}): {why}"
                    yield Finding("", "warning", CHECK, one_line(text), f"{SHOW} {node}")


def _slow(target: Mapping[str, Any], interval: float, limit: float) -> str:
    """Return the fault of the path to an address, or an empty string."""
    sent, answered = target.get("lastSendTime"), target.get("lastRecvTime")
    if sent and not answered:
        return "has never answered"
    if sent and answered and _time(sent) - _time(answered) > LOST * interval:
        return f"has not answered since {answered}"
    took = target.get("lastMeasuredRTTNanoseconds", 0)
    if limit and took > limit * 1e9:
        return f"took {took / 1e6:.3f} ms, more than the threshold of {limit * 1e3:g} ms"
    return ""


def _threshold(monitor: Mapping[str, Any]) -> float:
    """Seconds; 0 without one that can be read."""
    text = monitor["metadata"].get("annotations", {}).get(LATENCY_THRESHOLD, "")
    try:
        return seconds(text) if text else 0.0
    except ValueError:
        return 0.0


def _time(text: str) -> float:
    """Seconds since 1970 of a time of RFC 3339, whose fraction may have nine digits."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
