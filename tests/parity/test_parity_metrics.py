"""Our metrics have the names, types and sentences that upstream's source ($ANTREA_SRC) declares."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.agent.api import metrics
from antrea.controller.compute.metrics import METRICS, controller_metrics
from antrea.features.network_policy.agent_part import metrics as agent_policy_metrics
from antrea.outside.log.metrics import Metric
from antrea.outside.vswitch import operation_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.features.framework.controller_metric import ControllerMetric

GOLDEN = Path(os.environ.get("ANTREA_GOLDEN", "/nowhere"))
SOURCE = os.environ.get("ANTREA_SRC", "")
pytestmark = pytest.mark.skipif(not SOURCE, reason="ANTREA_SRC names no checkout of upstream")
NEVER_REGISTERED = ("eg_status_updates", "eip_status_updates")
"""Upstream's controller declares and counts these, and forgets to serve them."""
AGENT: Sequence[Metric] = [
    row
    for module in (metrics, agent_policy_metrics, operation_metrics)
    for row in vars(module).values()
    if type(row) is Metric
]
CONTROLLER: Sequence[ControllerMetric] = list(METRICS.values())
DECLARED = re.compile(
    r"metrics\.New(?P<kind>Gauge|Counter|Histogram)(?:Vec)?\((?:(?!metrics\.New).)*?Subsystem:\s+metricSubsystem(?:Agent|Controller),"
    r'\s+Name:\s+"(?P<name>\w+)",\s+Help:\s+(?P<help>"[^"]*"(?:\s*\+\s*"[^"]*")*),\s+StabilityLevel:\s+metrics\.(?P<stability>\w+)',
    re.DOTALL,
)


OURS_ALONE = {
    "antrea_agent_unenforced_rule_count": "counts rules that the Node cannot enforce",
    "antrea_agent_audited_rule_count": "upstream audits no rules",
    "antrea_agent_part_failure_count": "upstream ends the program",
    "antrea_agent_metric_failure_count": "upstream leaves out what it cannot read",
    "antrea_agent_fqdn_answer_dropped_count": "counts DNS answers that were not let through, by reason",
    "antrea_agent_fqdn_answer_ignored_count": "counts DNS answers of servers that are not trusted; upstream trusts all",
    "antrea_agent_fqdn_cache_fill_ratio": "warns before a limit on names is reached; upstream counts what it evicted after",
}
"""Metrics that upstream has not, and why."""
ADDED_WORDS = {", pod_limit and": " and"}
"""What our help texts say more, and upstream's words: names are limited for a Pod, too."""


@pytest.mark.parametrize(("program", "rows", "count"), [("agent", AGENT, 14), ("controller", CONTROLLER, 13)])
def test_metrics_are_declared_as_upstreams(
    program: str, rows: Sequence[Metric | ControllerMetric], count: int
) -> None:
    ours = [row for row in rows if row.name not in OURS_ALONE]
    text = (Path(SOURCE) / f"pkg/{program}/metrics/prometheus.go").read_text(encoding="utf-8")
    theirs = {
        f"antrea_{program}_{found['name']}": (
            found["kind"].lower(),
            found["stability"],
            "".join(re.findall(r'"([^"]*)"', found["help"])),
        )
        for found in DECLARED.finditer(text)
    }
    assert len(ours) == count
    assert OURS_ALONE.keys().isdisjoint(theirs)
    # whose sentence on how often they are read does not hold: they are read when they are asked for
    expected = {
        row.name: [text.partition(" This metric gets updated at")[0] for text in theirs[row.name]]
        for row in ours
    }
    assert {row.name: [row.kind, row.stability, upstreams(row.help)] for row in ours} == expected


def upstreams(text: str) -> str:
    for added, words in ADDED_WORDS.items():
        text = text.replace(added, words)
    return text


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="ANTREA_GOLDEN names no recorded answers")
def test_the_controllers_metrics_have_the_headers_that_were_recorded() -> None:
    texts = [file.read_text(encoding="utf-8") for file in sorted((GOLDEN / "raw/http").glob("*"))]
    recorded = list(dict.fromkeys(line for text in texts for line in text.splitlines()))
    ours = [
        line
        for line in controller_metrics({}, {}).splitlines()
        if not any(name in line for name in NEVER_REGISTERED)
    ]
    assert [line for line in ours if line.startswith("#")] == [
        line for line in recorded if line in ours and line.startswith("#")
    ]
