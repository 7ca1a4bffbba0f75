"""What rules let pass and denied: counters of the metric tables, and the policies whose they are.

A flow of these tables is one conjunction's, and so one rule's; every policy that states the rule counts what it counted.
parity: pkg/agent/openflow/network_policy.go NetworkPolicyMetrics, pkg/agent/stats/collector.go; upstream takes one of
several policies that state the same rule, and loses what was counted while no agent ran
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.features.counted import CLUSTER, KUBERNETES, NAMESPACED, Counted, Share, rise
from antrea.features.network_policy.conjunction import Numbered
from antrea.features.network_policy.place import IN, OUT
from antrea.features.network_policy.rule import Stated
from antrea.features.network_policy.sent import SentPolicy
from antrea.openflow.fields import AP_CONJ_ID, AP_DENY

if TYPE_CHECKING:
    from antrea.apis.stats import TrafficStats
    from antrea.engine import Facts
    from antrea.features.counted import Seen
    from antrea.openflow.flow_count import FlowCount

GATE = "NetworkPolicyStats"
POLICIES = (KUBERNETES, CLUSTER, NAMESPACED)


def number(found: FlowCount) -> int | None:
    """Of the conjunction that this flow of a metric table counts for; None if it is no rule's."""
    if found.value(AP_DENY):
        return found.value(AP_CONJ_ID)
    return next((value for side in (OUT, IN) if (value := found.value(side.label)) is not None), None)


def rule_of(facts: Facts, found: FlowCount) -> str:
    """The rule that this flow counts for; empty: none is known."""
    numbered = facts.get(Numbered, str(number(found)))
    return numbered.rule if numbered else ""


def increase(found: FlowCount, rule: str, before: Seen | None) -> TrafficStats:
    """What a flow of this rule has counted since the last look: all of it, if it was another rule's then."""
    by = rise(found, before if before and before.owner in ("", rule) else None)
    # a connection that is denied has no second packet
    first = found.state("+new") or bool(found.value(AP_DENY))
    return msgspec.structs.replace(by, sessions=by.packets) if first else by


def shares(facts: Facts, rule: str) -> set[Share]:
    """The policies that state a rule, each once by each name it gives the rule."""
    found = set()
    for stated in facts.by(Stated, "rule", rule):
        policy = facts.get(SentPolicy, stated.policy)
        if policy is None or policy.found.source_ref is None or policy.found.source_ref.type not in POLICIES:
            continue
        source = policy.found.source_ref
        name = "" if source.type == KUBERNETES else policy.found.rules[stated.number].name
        found.add(Share(source, name))
    return found


COUNTED = Counted(
    tables=tuple(side.metric.name for side in (OUT, IN)),
    owner=rule_of,
    increase=increase,
    shares=shares,
    there=lambda facts, share: facts.get(SentPolicy, share.policy.uid) is not None,
)
