"""What rules let pass and denied: counters of the metric tables, and the policies whose they are.

A flow of these tables is one conjunction's, and so one rule's; every policy that states the rule counts what it counted.
parity: pkg/agent/openflow/network_policy.go NetworkPolicyMetrics, pkg/agent/stats/collector.go; upstream takes one of
several policies that state the same rule, and loses what was counted while no agent ran
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.facts.ovs import PodInterface
from antrea.features.framework.traffic import CLUSTER, KUBERNETES, NAMESPACED, Counted, Share, rise
from antrea.features.network_policy.agent.audit_pass import AuditedIsolation
from antrea.features.network_policy.agent.conjunction import ConjunctionId
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule, targets
from antrea.features.network_policy.audit_mode import audit_mode
from antrea.openflow.fields import AP_CONJ_ID, AP_DENY

if TYPE_CHECKING:
    from antrea.apis.stats import TrafficStats
    from antrea.engine import Facts
    from antrea.features.framework.traffic import SeenCounters
    from antrea.openflow.flow_count import FlowCount

GATE = "NetworkPolicyStats"
MARK = " (audit)"
"""After the name of a rule that is audited: what it would deny is counted apart from what it has denied."""
ISOLATION = "isolation "
"""Begins the name of an owner that is no rule, before its number."""
POLICIES = (KUBERNETES, CLUSTER, NAMESPACED)


def number(found: FlowCount) -> int | None:
    """Of the conjunction that this flow of a metric table counts for; None if it is no rule's."""
    if found.value(AP_DENY):
        denies = found.value(AP_CONJ_ID)
        # of copies that an audited rule has passed on, and another denies
        passed = (value for side in (OUT, IN) if (value := found.value(side.register)) is not None)
        return next(passed, None) if denies is None else denies
    return next((value for side in (OUT, IN) if (value := found.value(side.label)) is not None), None)


def rule_of(facts: Facts, found: FlowCount) -> str:
    """The rule that this flow counts for; empty: none is known."""
    own = str(number(found))
    numbered = facts.get(ConjunctionId, own)
    if numbered is None:
        return f"{ISOLATION}{own}" if facts.get(AuditedIsolation, own) else ""
    return numbered.rule


def increase(found: FlowCount, rule: str, before: SeenCounters | None) -> TrafficStats:
    """What a flow of this rule has counted since the last look: all of it, if it was another rule's then."""
    by = rise(found, before if before and before.owner in ("", rule) else None)
    # a connection that is denied has no second packet
    first = found.state("+new") or bool(found.value(AP_DENY))
    return msgspec.structs.replace(by, sessions=by.packets) if first else by


def shares(facts: Facts, rule: str) -> set[Share]:
    """The policies that state a rule, each once by each name it gives the rule; one that is audited is marked."""
    found = set()
    for stated in _stated(facts, rule):
        policy = facts.get(SentPolicy, stated.policy)
        if policy is None or policy.found.source_ref is None or policy.found.source_ref.type not in POLICIES:
            continue
        source = policy.found.source_ref
        name = "" if source.type == KUBERNETES else policy.found.rules[stated.number].name
        if name and audit_mode(policy.found.metadata.annotations).has(name):
            name += MARK
        found.add(Share(source, name))
    return found


def _stated(facts: Facts, owner: str) -> list[StatedRule]:
    """Who states a rule; or the audited policies that would isolate a Pod in a direction."""
    if not owner.startswith(ISOLATION):
        return facts.by(StatedRule, "rule", owner)
    isolation = facts.get(AuditedIsolation, owner.removeprefix(ISOLATION))
    pod = facts.get(PodInterface, isolation.pod) if isolation else None
    if isolation is None or pod is None:
        return []
    rules = [rule for rule, _ in targets(facts, pod) if rule.isolates and rule.egress == isolation.egress]
    return [one for rule in rules for one in facts.by(StatedRule, "rule", rule.name)]


COUNTED = Counted(
    tables=tuple(side.metric.name for side in (OUT, IN)),
    owner=rule_of,
    increase=increase,
    shares=shares,
    there=lambda facts, share: facts.get(SentPolicy, share.policy.uid) is not None,
)
