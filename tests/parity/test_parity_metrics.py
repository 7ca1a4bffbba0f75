"""Our metrics have the names, types and sentences that upstream's source ($ANTREA_SRC) declares."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from antrea.agent import metrics
from antrea.outside import flow_operations
from antrea.outside.metrics import Metric

SOURCE = os.environ.get("ANTREA_SRC", "")
pytestmark = pytest.mark.skipif(not SOURCE, reason="ANTREA_SRC names no checkout of upstream")
OURS = [row for module in (metrics, flow_operations) for row in vars(module).values() if type(row) is Metric]
DECLARED = re.compile(
    r"metrics\.New(?P<kind>Gauge|Counter|Histogram)(?:Vec)?\((?:(?!metrics\.New).)*?Subsystem:\s+metricSubsystemAgent,"
    r'\s+Name:\s+"(?P<name>\w+)",\s+Help:\s+"(?P<help>[^"]*)",\s+StabilityLevel:\s+metrics\.(?P<stability>\w+)',
    re.DOTALL,
)


def test_the_agents_metrics_are_declared_as_upstreams() -> None:
    text = (Path(SOURCE) / "pkg/agent/metrics/prometheus.go").read_text(encoding="utf-8")
    theirs = {
        f"antrea_agent_{found['name']}": (found["kind"].lower(), found["stability"], found["help"])
        for found in DECLARED.finditer(text)
    }
    assert len(OURS) == 6
    assert {row.name: (row.kind, row.stability, row.help) for row in OURS} == {
        row.name: theirs[row.name] for row in OURS
    }
