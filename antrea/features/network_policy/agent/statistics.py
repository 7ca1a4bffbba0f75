"""Counters of the metric tables for what rules let pass and denied, and the policies that own them.

A flow of these tables is one conjunction's, and so one rule's; every policy that states the rule counts what it counted.
parity: pkg/agent/openflow/network_policy.go NetworkPolicyMetrics, pkg/agent/stats/collector.go; upstream takes one of several
policies that state the same rule, and loses what was counted while no agent ran
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.facts.ovs import PodInterface
from antrea.features.framework.traffic import (
    CLUSTER,
    KUBERNETES,
    NAMESPACED,
    Counted,
    Share,
    counter_increase,
)
from antrea.features.network_policy.agent.audit_pass import AuditedIsolation
from antrea.features.network_policy.agent.conjunction import ConjunctionId
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule, rules_with_member
from antrea.features.network_policy.audit_mode import audit_mode
from antrea.openflow.fields import AP_CONJ_ID, AP_DENY

if TYPE_CHECKING:
    from antrea.apis.stats import TrafficStats
    from antrea.engine import Facts
    from antrea.features.framework.traffic import SeenCounters
    from antrea.openflow.flow_count import FlowCount

GATE = "NetworkPolicyStats"
MARK = " (audit)"
"""Suffix of the name of an audited rule: what it would deny is counted apart from what it has denied."""
ISOLATION = "isolation "
"""Prefix of the name of an owner that is not a rule, before its number."""
POLICIES = (KUBERNETES, CLUSTER, NAMESPACED)


def number(flow: FlowCount) -> int | None:
    """Return the conjunction that this flow of a metric table counts for; None if it is not a rule's."""
    if flow.value(AP_DENY):
        denies = flow.value(AP_CONJ_ID)
        # of copies that an audited rule has passed on, and another denies
        passed = (value for side in (OUT, IN) if (value := flow.value(side.register)) is not None)
        return next(passed, None) if denies is None else denies
    return next((value for side in (OUT, IN) if (value := flow.value(side.label)) is not None), None)


def rule_of(facts: Facts, flow: FlowCount) -> str:
    """Return the rule that this flow counts for; empty if unknown."""
    conj_number = str(number(flow))
    numbered = facts.get(ConjunctionId, conj_number)
    if numbered is None:
        return f"{ISOLATION}{conj_number}" if facts.get(AuditedIsolation, conj_number) else ""
    return numbered.rule


def increase(flow: FlowCount, rule: str, before: SeenCounters | None) -> TrafficStats:
    """Return what a flow of this rule has counted since the last look: all of it, if it was another rule's then."""
    by = counter_increase(flow, before if before and before.owner in ("", rule) else None)
    # a connection that is denied has no second packet
    first = flow.state("+new") or bool(flow.value(AP_DENY))
    return msgspec.structs.replace(by, sessions=by.packets) if first else by


def shares(facts: Facts, rule: str) -> set[Share]:
    """Return the policies that state a rule, each once by each name it gives the rule; an audited one is marked."""
    shares = set()
    for stated in _stated(facts, rule):
        policy = facts.get(SentPolicy, stated.policy)
        if (
            policy is None
            or policy.policy.source_ref is None
            or policy.policy.source_ref.type not in POLICIES
        ):
            continue
        source = policy.policy.source_ref
        name = "" if source.type == KUBERNETES else policy.policy.rules[stated.number].name
        if name and audit_mode(policy.policy.metadata.annotations).has(name):
            name += MARK
        shares.add(Share(source, name))
    return shares


def _stated(facts: Facts, owner: str) -> list[StatedRule]:
    """Return the policies that state a rule, or the audited policies that would isolate a Pod in a direction."""
    if not owner.startswith(ISOLATION):
        return facts.by(StatedRule, "rule", owner)
    isolation = facts.get(AuditedIsolation, owner.removeprefix(ISOLATION))
    pod = facts.get(PodInterface, isolation.pod) if isolation else None
    if isolation is None or pod is None:
        return []
    rules = [
        rule for rule, _ in rules_with_member(facts, pod) if rule.isolates and rule.egress == isolation.egress
    ]
    return [stated for rule in rules for stated in facts.by(StatedRule, "rule", rule.name)]


COUNTED = Counted(
    tables=tuple(side.metric.name for side in (OUT, IN)),
    owner=rule_of,
    increase=increase,
    shares=shares,
    there=lambda facts, share: facts.get(SentPolicy, share.policy.uid) is not None,
)
