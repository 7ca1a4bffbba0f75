"""Policies in the agent: the tables they take, and what every Node does with packets that no rule is for.

What the controller sends is in `sent`, the rules it means in `rule`, the flows of these in `conjunction`.
parity: pkg/agent/openflow/network_policy.go, pipeline.go ingressClassifierFlows, localProbeFlows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.apis import core
from antrea.apis.policy_report import PolicyReport
from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Unit
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.service import Service
from antrea.features.admission import Watched
from antrea.features.carrier import told
from antrea.features.controlplane import GroupKind, ObjectKind
from antrea.features.feature import AgentFeature, Families, Realised
from antrea.features.gate import resolve
from antrea.features.network_policy.conjunction import (
    Numbered,
    conjunction_flows,
    flow,
    isolation_flows,
    peer_flows,
    target_flows,
)
from antrea.features.network_policy.cut import Severed, looks, severed_flows
from antrea.features.network_policy.packet_in import packet_in_entries
from antrea.features.network_policy.peer_class import (
    PeerClass,
    Shared,
    SharedAddress,
    class_flows,
    shared_groups,
)
from antrea.features.network_policy.place import IN, OUT, RANKS, Placed, placed_rules
from antrea.features.network_policy.rule import (
    Conjunction,
    Rule,
    Stated,
    peer_conjunctions,
    rule_conjunctions,
    rules,
    target_conjunctions,
)
from antrea.features.network_policy.sent import (
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentAppliedMember,
    SentPolicy,
)
from antrea.features.network_policy.service import kept_services, service_flows, service_row
from antrea.features.network_policy.unenforced import missing, why_not
from antrea.openflow.action import goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    HAIRPIN_CT_MARK,
    HOST_LOCAL_SOURCE_PKT_MARK,
    TO_GATEWAY_REG_MARK,
    TO_TUNNEL_REG_MARK,
    TO_UPLINK_REG_MARK,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_state, family
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import (
    ANTREA_POLICY_EGRESS_RULE,
    ANTREA_POLICY_INGRESS_RULE,
    EGRESS_DEFAULT_RULE,
    EGRESS_METRIC,
    EGRESS_RULE,
    INGRESS_DEFAULT_RULE,
    INGRESS_METRIC,
    INGRESS_RULE,
    INGRESS_SECURITY_CLASSIFIER,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.table import Table

GATE = "AntreaPolicy"
local = flows_of(Category.POD_CONNECTIVITY)


def tables(config: AgentConfig, families: Families) -> tuple[Table, ...]:
    """Those of Kubernetes policies, which are always on, and those of Antrea's own by their gate."""
    antrea = (ANTREA_POLICY_EGRESS_RULE, ANTREA_POLICY_INGRESS_RULE)
    return (
        *(antrea if GATE in resolve("agent", config.feature_gates) else ()),
        *(EGRESS_RULE, EGRESS_DEFAULT_RULE, EGRESS_METRIC),
        *(INGRESS_SECURITY_CLASSIFIER, INGRESS_RULE, INGRESS_DEFAULT_RULE, INGRESS_METRIC),
    )


def classifier_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Rules on what Pods receive are for Pods: what leaves the Node or comes back to its sender goes by."""
    for mark in (TO_GATEWAY_REG_MARK, TO_TUNNEL_REG_MARK, TO_UPLINK_REG_MARK):
        yield flow(INGRESS_SECURITY_CLASSIFIER, Priority.NORMAL, mark.match, then=[goto(INGRESS_METRIC)])
    yield flow(
        INGRESS_SECURITY_CLASSIFIER, Priority.NORMAL, HAIRPIN_CT_MARK.match, then=[goto(Stage.CONNTRACK)]
    )


def accepted_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """A connection is judged by its first packet: the others, and what belongs to it, go to the counters."""
    realised = facts.get(Realised)
    if realised is None:
        return
    antrea = realised.pipeline.has(ANTREA_POLICY_INGRESS_RULE)
    priority = Priority.TOP_ANTREA_POLICY if antrea else Priority.HIGH
    for cidr in node.pod_cidrs:
        for here in (OUT, IN):
            table = here.antrea if antrea else here.rule
            for state in ("-new+est", "-new+rel"):
                yield flow(table, priority, family(cidr), ct_state(state), then=[goto(here.metric)])


def probe_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """What processes of the Node send to its Pods is let in, so that kubelet's probes need no rule; a mark tells it."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    for cidr in node.pod_cidrs:
        yield local(
            INGRESS_SECURITY_CLASSIFIER,
            Priority.HIGH,
            family(cidr),
            told(config.ovs_datapath_type, HOST_LOCAL_SOURCE_PKT_MARK),
            ct_state("-rpl+trk"),
            then=[goto(Stage.CONNTRACK)],
        )


def report(facts: Facts, policy: SentPolicy) -> Iterator[PolicyReport]:
    """Of Antrea's own policies the controller counts the Nodes that have realised them, and shows why others have not."""
    node, realised = facts.get(ThisNode), facts.get(Realised)
    if node is None or realised is None or policy.found.tier_priority is None:
        return
    if realised.pipeline.has(ANTREA_POLICY_INGRESS_RULE):
        meta = policy.found.metadata
        yield PolicyReport(meta.name, node.name, meta.generation, _failure(facts, policy))


def _failure(facts: Facts, policy: SentPolicy) -> str:
    """Which rules are not enforced as they are written; empty if all are."""
    lacks = missing(facts)
    own = (row for row in rules(facts, policy) if isinstance(row, Rule))
    stated = zip(policy.found.rules, own, strict=True)
    reasons = {told.name: why for told, rule in stated if (why := why_not(facts, lacks, rule))}
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())


FEATURE = AgentFeature(
    name="NetworkPolicy",
    tables=tables,
    ranks=RANKS,
    units=(
        Unit(ThisNode, classifier_flows),
        Unit(ThisNode, accepted_flows),
        Unit(ThisNode, probe_flows),
        Unit(Realised, packet_in_entries),
        Unit(SentPolicy, report),
        Unit(SentPolicy, rules, yields=(Rule, Stated)),
        Unit(Rule, placed_rules, yields=(Placed,)),
        Unit(Rule, rule_conjunctions, yields=(Conjunction,)),
        Unit(PodInterface, target_conjunctions, yields=(Conjunction,)),
        Unit(SentAddressMember, peer_conjunctions, yields=(Conjunction,), by="group"),
        Unit(PodInterface, isolation_flows),
        Unit(PodInterface, target_flows),
        Unit(Rule, shared_groups, yields=(Shared,), by="peer"),
        Unit(SentAddressMember, peer_flows, yields=(SharedAddress,)),
        Unit(Service, service_flows),
        Unit(Service, kept_services),
        Unit(SharedAddress, class_flows, yields=(PeerClass,), by="end"),
        Unit(Conjunction, conjunction_flows, yields=(Numbered,)),
        Unit(PodInterface, looks),
        Unit(Severed, severed_flows),
    ),
    watched=(Watched("/api/v1/services", core.Service, Service, service_row),),
    watches=(
        ObjectKind("networkpolicies", SentPolicy, cp.NetworkPolicy, SentPolicy),
        GroupKind("addressgroups", SentAddressMember, SentAddressMember, SentAddressGroup),
        GroupKind("appliedtogroups", SentAppliedMember, SentAppliedMember, SentAppliedGroup),
    ),
)
