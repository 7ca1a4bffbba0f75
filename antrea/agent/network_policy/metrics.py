"""What the agent counts of policies, under upstream's names; and, beyond upstream, rules that are not enforced as written."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import PolicyRule
from antrea.features.network_policy.agent.unrealized import missing, why_not
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from antrea.engine import Facts

POLICIES = Metric(
    "antrea_agent_networkpolicy_count",
    "gauge",
    "STABLE",
    "Number of NetworkPolicies on local Node which are managed by the Antrea Agent.",
)
INGRESS_RULES = Metric(
    "antrea_agent_ingress_networkpolicy_rule_count",
    "gauge",
    "STABLE",
    "Number of ingress NetworkPolicy rules on local Node which are managed by the Antrea Agent.",
)
EGRESS_RULES = Metric(
    "antrea_agent_egress_networkpolicy_rule_count",
    "gauge",
    "STABLE",
    "Number of egress NetworkPolicy rules on local Node which are managed by the Antrea Agent.",
)
UNENFORCED = Metric(
    "antrea_agent_unenforced_rule_count",
    "gauge",
    "ALPHA",
    "Number of NetworkPolicy rules on local Node which are not enforced as they are written, for want of room.",
)


AUDITED = Metric(
    "antrea_agent_audited_rule_count",
    "gauge",
    "ALPHA",
    "Number of NetworkPolicy rules on local Node which are audited, so that they drop nothing.",
)


def policy_metrics(facts: Facts) -> str:
    """In Prometheus' format."""
    policies = [row.found for row in facts.all(SentPolicy)]
    directions = Counter(rule.direction for policy in policies for rule in policy.rules)
    lacks = missing(facts)
    lost = sum(bool(why_not(facts, lacks, rule)) for rule in facts.all(PolicyRule))
    rows = (
        (POLICIES, len(policies)),
        (INGRESS_RULES, directions["In"]),
        (EGRESS_RULES, directions["Out"]),
        (UNENFORCED, lost),
        (AUDITED, sum(rule.audit for rule in facts.all(PolicyRule))),
    )
    return "".join(metric.text([Sample(count)]) for metric, count in rows)
