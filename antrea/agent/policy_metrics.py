"""What the agent counts of policies beyond upstream: how Pods started, and rules that are not enforced as written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.network_policy.rule import Rule
from antrea.features.network_policy.unenforced import missing, why_not
from antrea.outside.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Facts

STARTS = Metric(
    "antrea_agent_pod_start_count",
    "counter",
    "ALPHA",
    "Number of times that a Pod's interface was to be connected, by when all policies for it were known: at once, in time, before this start of the agent alone, or never.",
)
UNENFORCED = Metric(
    "antrea_agent_unenforced_rule_count",
    "gauge",
    "ALPHA",
    "Number of NetworkPolicy rules on local Node which are not enforced as they are written, for want of room.",
)
KNOWN = ("at once", "in time", "earlier", "never")


def policy_metrics(facts: Facts, starts: Mapping[str, int]) -> str:
    """In Prometheus' format."""
    lacks = missing(facts)
    lost = sum(bool(why_not(facts, lacks, rule)) for rule in facts.all(Rule))
    return STARTS.text(Sample(starts.get(known, 0), {"known": known}) for known in KNOWN) + UNENFORCED.text(
        [Sample(lost)]
    )
