"""Metrics of policies, under upstream's names; and, in addition, rules that are not enforced as written."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import PolicyRule
from antrea.features.network_policy.agent.unrealized import refused_entries, why_not
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.engine import Facts
    from antrea.features.network_policy.agent_part.fqdn import FqdnController

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
NAMES = Metric(
    "antrea_agent_fqdn_cache_size",
    "gauge",
    "ALPHA",
    "Number of domain names which the Antrea Agent tracks for the FQDN rules of the NetworkPolicies applied to local Pods.",
)
NAMES_EVICTED = Metric(
    "antrea_agent_fqdn_cache_eviction_count",
    "counter",
    "ALPHA",
    "Number of domain names which the Antrea Agent stopped tracking to honor its FQDN tracking limits, partitioned by the limit "
    "which was reached (selector_limit, pod_limit and total_limit). A rule stops matching an evicted domain name until a Pod which it "
    "selects resolves that name again.",
)
NAMES_FILL = Metric(
    "antrea_agent_fqdn_cache_fill_ratio",
    "gauge",
    "ALPHA",
    "Largest share of a limit on tracked domain names that is used, from 0 to 1, partitioned by the limit (selector_limit and"
    " total_limit).",
)
ANSWERS_DROPPED = Metric(
    "antrea_agent_fqdn_answer_dropped_count",
    "counter",
    "ALPHA",
    "Number of DNS answers that the Antrea Agent did not let through. The reason is used as a label.",
)
ANSWERS_IGNORED = Metric(
    "antrea_agent_fqdn_answer_ignored_count",
    "counter",
    "ALPHA",
    "Number of DNS answers on names in rules of which no rule allows the addresses, because their servers are not trusted.",
)


def name_metrics(caches: Sequence[FqdnController]) -> str:
    """Render the metrics of all caches of names together."""
    evicted, dropped = Counter[str](), Counter[str]()
    for controller in caches:
        evicted.update(controller.cache.evicted)
        dropped.update(controller.dropped)
    return (
        NAMES.text([Sample(sum(len(cache.cache) for cache in caches))])
        + NAMES_FILL.text(_fills(caches))
        + NAMES_EVICTED.text(_by_reason(evicted))
        + ANSWERS_DROPPED.text(_by_reason(dropped))
        + ANSWERS_IGNORED.text([Sample(sum(cache.ignored for cache in caches))])
    )


def _fills(caches: Sequence[FqdnController]) -> list[Sample]:
    largest: dict[str, float] = {}
    for fill in (fill for cache in caches for fill in cache.cache.fills()):
        largest[fill.limit] = max(fill.share, largest.get(fill.limit, 0))
    return [Sample(round(share, 3), {"limit": limit}) for limit, share in sorted(largest.items())]


def _by_reason(counts: Mapping[str, int]) -> list[Sample]:
    return [Sample(count, {"reason": why}) for why, count in sorted(counts.items())]


def policy_metrics(facts: Facts) -> str:
    """Render the metrics in Prometheus' format."""
    policies = [row.policy for row in facts.all(SentPolicy)]
    directions = Counter(rule.direction for policy in policies for rule in policy.rules)
    lacks = refused_entries(facts)
    lost = sum(bool(why_not(facts, lacks, rule)) for rule in facts.all(PolicyRule))
    rows = (
        (POLICIES, len(policies)),
        (INGRESS_RULES, directions["In"]),
        (EGRESS_RULES, directions["Out"]),
        (UNENFORCED, lost),
        (AUDITED, sum(rule.audit for rule in facts.all(PolicyRule))),
    )
    return "".join(metric.text([Sample(count)]) for metric, count in rows)
