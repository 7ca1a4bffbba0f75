"""Policies in the agent: their tables, and flows of every Node for packets that no rule is for.

Rows from the controller are in `received`, rules in `rule`, their flows in `conjunction`.
parity: pkg/agent/openflow/network_policy.go, pipeline.go ingressClassifierFlows, localProbeFlows
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis.policy_report import ON_NODE, PolicyReport
from antrea.apis.shown import one_line
from antrea.config.agent import MACHINE_TYPE, AgentConfig
from antrea.engine import Facts, Unit
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.service import Service
from antrea.features.framework.agent_feature import (
    EVERYWHERE,
    AgentFeature,
    Families,
    NumberPattern,
    RealizedPipeline,
)
from antrea.features.framework.controlplane_watch import GroupKind, ObjectKind
from antrea.features.framework.gate import resolve
from antrea.features.framework.packet_mark import match_host_mark
from antrea.features.network_policy.agent import statistics
from antrea.features.network_policy.agent.audit_pass import AUDITS, NODE_PORT_AUDITS
from antrea.features.network_policy.agent.conjunction import CONJUNCTIONS, PEERS, RESERVED, TARGETS, flow
from antrea.features.network_policy.agent.connection_flush import (
    FlushedConnection,
    flushed_connection_flows,
    inspect_connections,
)
from antrea.features.network_policy.agent.dns_server import DNS_ENDPOINT_WATCH, DnsEndpoint
from antrea.features.network_policy.agent.enforcement import enforcements
from antrea.features.network_policy.agent.fqdn import UNITS as FQDN_UNITS
from antrea.features.network_policy.agent.isolation import CLOSED_NODE_PORTS, ISOLATION
from antrea.features.network_policy.agent.node_port import NODE_PORTS, classified_flows
from antrea.features.network_policy.agent.node_target import GATE_OFF, NodeTarget, is_for_node, node_target
from antrea.features.network_policy.agent.packet_in import GROUPS, packet_in_entries
from antrea.features.network_policy.agent.peer_class import CLASSES, SENDERS, SharedGroup, shared_groups
from antrea.features.network_policy.agent.peer_class import POOL as CLASS_IDS
from antrea.features.network_policy.agent.priority import IN, OUT, RANKS, RulePriority, placed_rules
from antrea.features.network_policy.agent.priority import POOL as CONJUNCTION_IDS
from antrea.features.network_policy.agent.received import (
    KINDS,
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentAppliedMember,
    SentPolicy,
)
from antrea.features.network_policy.agent.rule import (
    Conjunction,
    PolicyRule,
    StatedRule,
    peer_conjunctions,
    rule_conjunctions,
    rules,
    target_conjunctions,
)
from antrea.features.network_policy.agent.service import (
    SERVICES,
    kept_services,
    lacking_services,
    named_services,
)
from antrea.features.network_policy.agent.service_target import ServiceTarget, service_target
from antrea.features.network_policy.agent.unrealized import refused_entries, why_not
from antrea.features.network_policy.confirmation import taken_back
from antrea.features.proxy.service import SERVICE_WATCH
from antrea.host.pod_tracking import TrackedPodAddress
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
from antrea.openflow.match import ct_state, family, ip, ipv6
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
MAX_LENGTH = 63
"""Maximum number of characters of a rule's name in a report."""
local = flows_of(Category.POD_CONNECTIVITY)


def tracked_pod_addresses(_: Facts, pod: PodInterface) -> Iterator[TrackedPodAddress]:
    """Yield each address of a Pod, whose connections end with it.

    Otherwise they would continue with the next Pod of the address, whose policies have not judged them: connection tracking
    accepts each packet with these addresses and ports as established, for as long as a client sends UDP. Upstream leaves them.
    """
    for address in pod.ips:
        yield TrackedPodAddress(address, (f"{pod.name} {pod.ofport} {pod.mac}",))


def tables(config: AgentConfig, _families: Families) -> tuple[Table, ...]:
    """Return the tables of Kubernetes policies, which are always on, and those of Antrea's own by their gate."""
    antrea = (ANTREA_POLICY_EGRESS_RULE, ANTREA_POLICY_INGRESS_RULE)
    return (
        *(antrea if GATE in resolve("agent", config.feature_gates) else ()),
        *(EGRESS_RULE, EGRESS_DEFAULT_RULE, EGRESS_METRIC),
        *(INGRESS_SECURITY_CLASSIFIER, INGRESS_RULE, INGRESS_DEFAULT_RULE, INGRESS_METRIC),
    )


def classifier_flows(_facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows by which packets that leave the Node or return to their sender skip ingress rules, which are for Pods."""
    if node.is_machine:
        return
    for mark in (TO_GATEWAY_REG_MARK, TO_TUNNEL_REG_MARK, TO_UPLINK_REG_MARK):
        yield flow(INGRESS_SECURITY_CLASSIFIER, Priority.NORMAL, mark.match, then=[goto(INGRESS_METRIC)])
    yield flow(
        INGRESS_SECURITY_CLASSIFIER, Priority.NORMAL, HAIRPIN_CT_MARK.match, then=[goto(Stage.CONNTRACK)]
    )


def accepted_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows by which only the first packet of a connection is judged: others, and related ones, go to the counters."""
    realized = facts.get(RealizedPipeline)
    if realized is None:
        return
    antrea = realized.pipeline.has(ANTREA_POLICY_INGRESS_RULE)
    priority = Priority.TOP_ANTREA_POLICY if antrea else Priority.HIGH
    for v6 in sorted(node.families):
        for here in (OUT, IN):
            table = here.antrea if antrea else here.rule
            for state in ("-new+est", "-new+rel"):
                yield flow(table, priority, ipv6 if v6 else ip, ct_state(state), then=[goto(here.metric)])


def probe_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows that admit what processes of the Node send to its Pods, so that kubelet's probes need no rule; identified by
    a mark.
    """
    config = facts.get(AgentConfig)
    if config is None:
        return
    for cidr in node.pod_cidrs:
        yield local(
            INGRESS_SECURITY_CLASSIFIER,
            Priority.HIGH,
            family(cidr),
            match_host_mark(config.ovs_datapath_type, HOST_LOCAL_SOURCE_PKT_MARK),
            ct_state("-rpl+trk"),
            then=[goto(Stage.CONNTRACK)],
        )


def report(facts: Facts, policy: SentPolicy) -> Iterator[PolicyReport]:
    """Yield the report of one of Antrea's policies: the controller counts the Nodes that have realized it, and shows why others
    have not.
    """
    node, realized = facts.get(ThisNode), facts.get(RealizedPipeline)
    if node is None or realized is None or policy.policy.tier_priority is None:
        return
    if realized.pipeline.has(ANTREA_POLICY_INGRESS_RULE):
        meta = policy.policy.metadata
        failure = taken_back(facts, policy.policy) or _failure(facts, policy)
        flush_on_deny = [
            cut for enforcement in enforcements() for cut in enforcement.prevented_cuts(facts, policy.key)
        ]
        failures = "; ".join(
            f"{one_line(name[:MAX_LENGTH])} would cut {what}" for name, what in flush_on_deny
        )
        kept = failures or (ON_NODE if not failure and is_for_node(facts, policy.policy) else "")
        parts = (
            part
            for enforcement in enforcements()
            for part in enforcement.untranslated_rules(facts, policy.key)
        )
        translated = "; ".join(f"{one_line(name[:MAX_LENGTH])} at {ports}" for name, ports in parts)
        yield PolicyReport(meta.name, node.name, meta.generation, failure, kept, translated)


def _failure(facts: Facts, policy: SentPolicy) -> str:
    """Return which rules are not enforced as they are written; empty if all are."""
    lacks = refused_entries(facts)
    rows = list(rules(facts, policy))
    rules_by_name = {row.name: row for row in rows if isinstance(row, PolicyRule)}
    reasons: dict[str, str] = {}
    for row in rows:
        if isinstance(row, StatedRule) and (why := why_not(facts, lacks, rules_by_name[row.rule])):
            reasons[one_line(policy.policy.rules[row.number].name[:MAX_LENGTH])] = why
    if not enforcements() and is_for_node(facts, policy.policy):
        reasons[""] = GATE_OFF
    for name, why in (
        failure for enforcement in enforcements() for failure in enforcement.failures(facts, policy)
    ):
        reasons.setdefault(one_line(name[:MAX_LENGTH]), why)
    return "; ".join(f"{name}: {why}" if name else why for name, why in reasons.items())


MACHINE = AgentFeature(
    name="NetworkPolicy on ExternalNodes",
    tables=tables,
    ranks=RANKS,
    units=(
        Unit(ThisNode, classifier_flows),
        Unit(ThisNode, accepted_flows),
        Unit(RealizedPipeline, packet_in_entries),
        Unit(SentPolicy, report),
        Unit(SentAppliedMember, node_target, yields=(NodeTarget,)),
        Unit(SentAppliedMember, service_target, yields=(ServiceTarget,)),
        Unit(SentPolicy, rules, yields=(PolicyRule, StatedRule)),
        Unit(PolicyRule, placed_rules, yields=(RulePriority,)),
        Unit(PolicyRule, rule_conjunctions, yields=(Conjunction,)),
        Unit(PodInterface, target_conjunctions, yields=(Conjunction,)),
        Unit(SentAddressMember, peer_conjunctions, yields=(Conjunction,), by="group"),
        ISOLATION,
        TARGETS,
        Unit(PolicyRule, shared_groups, yields=(SharedGroup,), by="peer"),
        PEERS,
        CLASSES,
        CONJUNCTIONS,
        AUDITS,
        NODE_PORT_AUDITS,
        *FQDN_UNITS,
        Unit(PodInterface, inspect_connections),
        Unit(PodInterface, tracked_pod_addresses),
        Unit(FlushedConnection, flushed_connection_flows),
    ),
    watches=(
        ObjectKind("networkpolicies", SentPolicy, cp.NetworkPolicy, SentPolicy),
        GroupKind("addressgroups", SentAddressMember, SentAddressMember, SentAddressGroup),
        GroupKind("appliedtogroups", SentAppliedMember, SentAppliedMember, SentAppliedGroup),
    ),
    numbers=(
        NumberPattern(CONJUNCTION_IDS, re.compile(r"\bconj_id=(\d+)|\bconjunction\((\d+),"), less=RESERVED),
        NumberPattern(CLASS_IDS, re.compile(r"\breg11=(0x[0-9a-f]+)(?!/)\b"), mask=~SENDERS),
        NumberPattern(GROUPS, re.compile(r"\bgroup(?:_id=|:)(\d+)")),
    ),
    category=Category.NETWORK_POLICY,
    sweep_after=KINDS,
    replay_after=KINDS,
    runs_on=(MACHINE_TYPE,),
)
FEATURE = msgspec.structs.replace(
    MACHINE,
    name="NetworkPolicy",
    units=(
        *MACHINE.units,
        Unit(ThisNode, probe_flows),
        SERVICES,
        Unit(Service, kept_services),
        Unit(RealizedPipeline, classified_flows),
        NODE_PORTS,
        CLOSED_NODE_PORTS,
    ),
    watched=(SERVICE_WATCH, DNS_ENDPOINT_WATCH),
    sweep_after=(*KINDS, Service),
    replay_after=(*KINDS, Service),
    kept={Service: named_services, DnsEndpoint: lambda facts: facts.all(DnsEndpoint)},
    lacking=lacking_services,
    runs_on=("k8sNode",),
)
STATISTICS = AgentFeature(
    name="NetworkPolicyStats", gate=statistics.GATE, counted=statistics.COUNTED, runs_on=EVERYWHERE
)
FEATURES = (FEATURE, MACHINE, STATISTICS)
