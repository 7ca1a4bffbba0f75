"""Node policies in the agent, and the statistics of their rules: named counters of nftables, and the policies that own them.

A connection is judged by its first packet, so that packets are connections, as far as they are TCP's.
parity: pkg/agent/controller/networkpolicy/node_reconciler_linux.go; upstream uses iptables and ipset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.facts.api_server import ApiServerEndpoint
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.framework.traffic import Counted, Share, counter_increase
from antrea.features.network_policy.agent.node_target import GATE
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.statistics import MARK
from antrea.features.node_policy.audit import rule_of
from antrea.features.node_policy.guard import WATCHED
from antrea.features.node_policy.rule import NodeRule
from antrea.features.node_policy.unit import UNITS
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from antrea.apis.stats import TrafficStats
    from antrea.engine import Facts
    from antrea.features.framework.traffic import SeenCounters
    from antrea.openflow.flow_count import FlowCount

STATISTICS_GATE = "NetworkPolicyStats"


def owner(facts: Facts, counter: FlowCount) -> str:
    """Return the key of the rule of this counter; empty if unknown."""
    rule = rule_of(facts, counter.flow)
    return rule.key if rule else ""


def increase(counter: FlowCount, whose: str, before: SeenCounters | None) -> TrafficStats:
    """Return the increase of a counter: all of it, if it was another rule's then, or was recreated."""
    by = counter_increase(counter, before if before and before.owner in ("", whose) else None)
    return msgspec.structs.replace(by, sessions=by.packets)


def shares(facts: Facts, whose: str) -> tuple[Share, ...]:
    """Return the share of its policy."""
    rule = facts.get(NodeRule, whose)
    policy = facts.get(SentPolicy, rule.policy) if rule else None
    if rule is None or policy is None or policy.policy.source_ref is None:
        return ()
    name = f"{rule.rule.name}{MARK}" if rule.audit and rule.rule.name else rule.rule.name
    return (Share(policy.policy.source_ref, name),)


def is_known(facts: Facts, share: Share) -> bool:
    """Whether the policy is known to this Node."""
    return facts.get(SentPolicy, share.policy.uid) is not None


COUNTED = Counted((), owner, increase, shares, is_known, counters=True)


FEATURE = AgentFeature(
    name="NodePolicy",
    units=UNITS,
    watched=(WATCHED,),
    gate=GATE,
    within="AntreaPolicy",
    category=Category.NETWORK_POLICY,
    sweep_after=(ApiServerEndpoint,),
    replay_after=(ApiServerEndpoint,),
)
STATISTICS = AgentFeature(name="NodePolicyStats", gate=STATISTICS_GATE, within=GATE, counted=COUNTED)
FEATURES = (FEATURE, STATISTICS)
