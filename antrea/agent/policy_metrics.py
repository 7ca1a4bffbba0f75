"""What the agent counts of policies beyond upstream: rules that are not enforced as written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.network_policy.rule import Rule
from antrea.features.network_policy.unenforced import missing, why_not
from antrea.outside.metrics import Metric, Sample

if TYPE_CHECKING:
    from antrea.engine import Facts

UNENFORCED = Metric(
    "antrea_agent_unenforced_rule_count",
    "gauge",
    "ALPHA",
    "Number of NetworkPolicy rules on local Node which are not enforced as they are written, for want of room.",
)


def policy_metrics(facts: Facts) -> str:
    """In Prometheus' format."""
    lacks = missing(facts)
    lost = sum(bool(why_not(facts, lacks, rule)) for rule in facts.all(Rule))
    return UNENFORCED.text([Sample(lost)])
