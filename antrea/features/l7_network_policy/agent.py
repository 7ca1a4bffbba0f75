"""L7NetworkPolicy in the agent: tenants of the engine, and flows that send connections through it.

A connection that an egress and an ingress rule on the same Node both allow goes through it twice, as what each of them judges:
first with the VLAN of the egress rule, and from there with that of the ingress rule. Upstream judges it by the latter alone.
parity: pkg/agent/openflow/network_policy.go l7NPTrafficControlFlows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.errors import Invalid, Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import AgentFeature, RealizedPipeline
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import L7, PolicyRule, StatedRule
from antrea.features.network_policy.l7.configuration import LAST_TENANT, TAPS
from antrea.features.network_policy.l7.rules import signatures
from antrea.features.network_policy.l7.tenant import (
    ALL_NAMESPACES_SHARE,
    GATE,
    MAX_OLD_VERSIONS,
    NAMESPACE_SHARE,
    POOL,
    L7Claim,
    L7Demand,
    L7Excess,
    L7Namespace,
    L7Share,
    LoadedTenant,
    RejectedSignatures,
    Tenant,
    UsedVlan,
    is_inspectable,
    version_of,
)
from antrea.host.link import Link
from antrea.host.ovs_port import TYPE_KEY, Port
from antrea.openflow.action import (
    DROP,
    ETH_SRC_END,
    POP_VLAN,
    PUSH_VLAN,
    VLAN_VID,
    goto,
    move,
    output,
    set_vlan_priority,
)
from antrea.openflow.cookie import Category
from antrea.openflow.ct import NAT, ct
from antrea.openflow.fields import (
    CT_STATE_NOT_RESTORED_REG_MARK,
    CT_STATE_RESTORED_REG_MARK,
    FROM_L7_NP_RETURN_REG_MARK,
    HAIRPIN_CT_MARK,
    L7_NP_EGRESS_CT_LABEL,
    L7_NP_EGRESS_VLAN_ID_CT_LABEL,
    L7_NP_INGRESS_CT_LABEL,
    L7_NP_REDIRECT_CT_MARK,
    L7_NP_RULE_VLAN_ID_CT_LABEL,
    NOT_L7_NP_EGRESS_CT_LABEL,
    NOT_L7_NP_INGRESS_CT_LABEL,
    OUTPUT_TO_OF_PORT_REG_MARK,
    REWRITE_MAC_REG_MARK,
    TARGET_OF_PORT,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_state, dl_vlan_pcp, in_port, ip, ipv6, tagged
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import CLASSIFIER, CONNTRACK_ZONE, L3_FORWARDING, OUTPUT, SNAT, TRAFFIC_CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Action

PORT_TYPE = "l7-network-policy"
"""antrea-type of the taps."""
REPLY, REQUEST = ct_state("+rpl-rel+trk"), ct_state("-rpl-rel+trk")
"""Packets of a connection; what is related to it, as an error of ICMP, has no request and goes by."""
FIRST, SECOND = 1, 2
"""Priorities in the tag of a packet that goes to the engine twice. On the first way the end of its source MAC is the VLAN of the
second; on its way out it is routed, which gives it a MAC again. Resets of the engine have none of them."""
flow = flows_of(Category.NETWORK_POLICY)


def inspecting(facts: Facts) -> bool:
    """Whether any rule on Pods of this Node has application protocols: without, packets are tracked once."""
    return bool(facts.by(PolicyRule, "l7", L7))


# units


def taps(_: Facts, _node: ThisNode) -> Iterator[Port | Link]:
    """The ports by which packets go to the engine and come back."""
    for name in TAPS:
        yield Port(
            name=name,
            type="internal",
            options=(),
            external_ids=((TYPE_KEY, PORT_TYPE),),
            no_flood=True,
            category=int(Category.NETWORK_POLICY),
        )
        yield Link(name, 0)


def tenants(facts: Facts, rule: PolicyRule) -> Iterator[Tenant | RejectedSignatures]:
    """The tenants of a rule with application protocols: of the rule as it is, and of versions that connections have."""
    if not rule.l7_protocols or not is_inspectable(facts, rule) or facts.get(L7Excess, rule.name):
        return
    try:
        text = signatures(rule.l7_protocols, logs=rule.logging)
    except Invalid as error:
        yield RejectedSignatures(rule.name, str(error))
        return
    version = version_of(rule, text)
    try:
        vlan = facts.id(POOL, version)
    except Unavailable:
        facts.all(LoadedTenant)  # a tenant that goes leaves its number to this rule
        why = f"all {LAST_TENANT} tenants of the L7 engine are in use, by rules or by connections of deleted ones"
        yield RejectedSignatures(rule.name, why)
        return
    yield Tenant(rule=rule.name, version=version, vlan=vlan, signatures=text)
    for row in _old_versions(facts, rule.name, version):
        # another VLAN than that of its name: the journal was lost, and it goes
        if facts.id(POOL, row.version) == row.vlan:
            yield Tenant(rule=rule.name, version=row.version, vlan=row.vlan, signatures=text, is_old=True)


def _old_versions(facts: Facts, rule: str, version: str) -> list[LoadedTenant]:
    """Return the latest loaded versions, without this one: a rule that is edited repeatedly takes a bounded number."""
    rows = [row for row in facts.by(LoadedTenant, "rule", rule) if row.version != version]
    return sorted(rows, key=lambda row: row.since)[-MAX_OLD_VERSIONS:]


def claims(facts: Facts, rule: PolicyRule) -> Iterator[L7Claim | L7Namespace]:
    """Yield the claim of a namespaced rule; if several policies state it, for the first one."""
    if not rule.l7_protocols or rule.order is None:
        return
    policies = {stated.policy for stated in facts.by(StatedRule, "rule", rule.name)}
    sent = [facts.get(SentPolicy, policy) for policy in policies]
    sources = [policy.policy.source_ref for policy in sent if policy is not None]
    namespaces = [source.namespace if source else "" for source in sources]
    if namespaces and all(namespaces):
        namespace = min(namespaces)
        yield L7Claim(rule.name, namespace, (rule.order.created, rule.order.uid, rule.order.rule))
        yield L7Namespace(namespace)


def demand(facts: Facts, row: L7Namespace) -> Iterator[L7Demand]:
    """Yield what the rules of a Namespace need, cut at its share, so that a Namespace that has that does not count for more."""
    needed = sum(_needed(facts, claim) for claim in facts.by(L7Claim, "namespace", row.name))
    yield L7Demand(row.name, min(needed, NAMESPACE_SHARE))


def share(facts: Facts, _node: ThisNode) -> Iterator[L7Share]:
    """Yield the share of each Namespace, where all of them need more than there is: one that needs less gets all it needs."""
    needs = [row.tenants for row in facts.all(L7Demand)]
    if sum(needs) > ALL_NAMESPACES_SHARE:
        yield L7Share(fair_share(needs, ALL_NAMESPACES_SHARE))


def fair_share(needs: list[int], total: int) -> int:
    """Return the largest number to which all `needs` can be cut so that their sum is at most `total`; 0 if there is not one for each.

    >>> fair_share([1, 2, 9, 9], 10)
    3
    """
    left, most = total, 0
    for number, need in enumerate(sorted(needs)):
        most = left // (len(needs) - number)
        if need > most:
            return most
        left -= need
    return max(needs, default=most)


def excess(facts: Facts, row: L7Namespace) -> Iterator[L7Excess]:
    """Yield the rules beyond the share of their Namespace: the oldest policies have theirs."""
    taken, shared = 0, facts.get(L7Share)
    most = min(shared.most, NAMESPACE_SHARE) if shared else NAMESPACE_SHARE
    for claim in sorted(
        facts.by(L7Claim, "namespace", row.name), key=lambda row_claim: (row_claim.since, row_claim.rule)
    ):
        taken += _needed(facts, claim)
        if taken > most:
            yield L7Excess(claim.rule, row.name, most)


def _needed(facts: Facts, claim: L7Claim) -> int:
    return max(1, len(facts.by(LoadedTenant, "rule", claim.rule)))


def used_vlan(facts: Facts, row: UsedVlan) -> Iterator[Tenant]:
    """Yield nothing, but reserve the number for its version."""
    facts.id(POOL, row.version)
    yield from ()


def engine_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield the path to the engine and back, while any rule needs it."""
    config, realized = facts.get(AgentConfig), facts.get(RealizedPipeline)
    ports = [facts.get(OvsPort, name) for name in TAPS]
    if config is None or realized is None or not inspecting(facts):
        return
    # resets of the engine come by the first, with the MAC addresses of a packet that may have been routed
    for port, marks in zip(ports, ([REWRITE_MAC_REG_MARK.load], []), strict=True):
        if port is not None:
            came = _forward_actions(*marks)
            yield flow(CLASSIFIER, Priority.NORMAL, in_port(port.ofport), tagged, then=came)
    to, back = ports
    if to is not None and back is not None:
        yield from _second_way(to, back)
    yield from _output_flows(ports[0])
    for v6 in sorted(node.families):
        yield from _tracking_flows(v6=v6)
        if realized.pipeline.has(SNAT):
            # in the zone of sources a connection has no mark of the engine
            both = (HAIRPIN_CT_MARK.match, L7_NP_REDIRECT_CT_MARK.match)
            yield flow(SNAT, Priority.HIGH, ipv6 if v6 else ip, REQUEST, *both, then=DROP)


def _forward_actions(*marks: Action) -> list[Action]:
    """Return actions that forward a packet or a reset of the engine."""
    return [POP_VLAN, FROM_L7_NP_RETURN_REG_MARK.load, *marks, goto(Stage.CONNTRACK_STATE)]


def _second_way(to: OvsPort, back: OvsPort) -> Iterator[Flow]:
    """Yield flows by which packets that the egress rule passes go to the engine again, for the ingress rule."""
    again = [move(ETH_SRC_END, VLAN_VID), set_vlan_priority(SECOND), output(to.ofport)]
    yield flow(CLASSIFIER, Priority.HIGH, in_port(back.ofport), dl_vlan_pcp(FIRST), then=again)
    came = _forward_actions(REWRITE_MAC_REG_MARK.load)
    yield flow(CLASSIFIER, Priority.HIGH, in_port(back.ofport), dl_vlan_pcp(SECOND), then=came)


def _output_flows(tap: OvsPort | None) -> Iterator[Flow]:
    """Yield flows for packets to the engine; those that come from it continue, and pass no policy again."""
    back = FROM_L7_NP_RETURN_REG_MARK.match
    yield flow(TRAFFIC_CONTROL, Priority.HIGH, back, then=[goto(Stage.OUTPUT)])
    sent = (OUTPUT_TO_OF_PORT_REG_MARK.match, back)
    yield flow(OUTPUT, Priority.HIGH + 3, *sent, then=[output(TARGET_OF_PORT)])
    once: list[Action] | tuple[Action, ...] = DROP
    twice = once
    if tap is not None:
        once = [PUSH_VLAN, move(L7_NP_RULE_VLAN_ID_CT_LABEL, VLAN_VID), output(tap.ofport)]
        second = move(L7_NP_RULE_VLAN_ID_CT_LABEL, ETH_SRC_END)
        first = [PUSH_VLAN, move(L7_NP_EGRESS_VLAN_ID_CT_LABEL, VLAN_VID), set_vlan_priority(FIRST)]
        twice = [second, *first, output(tap.ofport)]
    only_egress = (L7_NP_EGRESS_CT_LABEL.match, NOT_L7_NP_INGRESS_CT_LABEL.match)
    only_ingress = (NOT_L7_NP_EGRESS_CT_LABEL.match, L7_NP_INGRESS_CT_LABEL.match)
    both = (L7_NP_EGRESS_CT_LABEL.match, L7_NP_INGRESS_CT_LABEL.match)
    for state in (REPLY, REQUEST):
        connection = (OUTPUT_TO_OF_PORT_REG_MARK.match, state, L7_NP_REDIRECT_CT_MARK.match)
        for directions, then in ((only_egress, once), (only_ingress, once), (both, twice)):
            yield flow(OUTPUT, Priority.HIGH + 2, *connection, *directions, then=then)


def _tracking_flows(*, v6: bool) -> Iterator[Flow]:
    """The engine gets both directions with the same addresses: requests after they are translated to the Endpoint of a Service, and
    replies before they are translated back."""
    family, zone = ipv6 if v6 else ip, Zone.CT_ZONE_V6 if v6 else Zone.CT_ZONE
    back, looked_at = FROM_L7_NP_RETURN_REG_MARK.match, L7_NP_REDIRECT_CT_MARK.match
    seen = [CT_STATE_RESTORED_REG_MARK.load, ct(zone, table=CONNTRACK_ZONE)]
    yield flow(CONNTRACK_ZONE, Priority.HIGH + 2, family, CT_STATE_NOT_RESTORED_REG_MARK.match, then=seen)
    untranslated = [ct(zone, table=L3_FORWARDING, nat=NAT)]
    yield flow(CONNTRACK_ZONE, Priority.HIGH + 1, family, back, ct_state("+rpl+trk"), then=untranslated)
    onward = [goto(L3_FORWARDING)]
    yield flow(CONNTRACK_ZONE, Priority.HIGH + 1, family, back, ct_state("-rpl+trk"), then=onward)
    to_engine = [OUTPUT_TO_OF_PORT_REG_MARK.load, goto(OUTPUT)]
    yield flow(CONNTRACK_ZONE, Priority.HIGH, family, REPLY, looked_at, then=to_engine)


FEATURE = AgentFeature(
    name=GATE,
    gate=GATE,
    within="AntreaPolicy",
    tables=(TRAFFIC_CONTROL,),
    units=(
        Unit(ThisNode, taps),
        Unit(ThisNode, engine_flows),
        Unit(PolicyRule, claims, yields=(L7Claim, L7Namespace)),
        Unit(L7Namespace, demand, yields=(L7Demand,)),
        Unit(ThisNode, share, yields=(L7Share,)),
        Unit(L7Namespace, excess, yields=(L7Excess,)),
        Unit(PolicyRule, tenants, yields=(RejectedSignatures,)),
        Unit(UsedVlan, used_vlan),
    ),
    limits=((POOL, LAST_TENANT),),
    category=Category.NETWORK_POLICY,
    sweep_after=(LoadedTenant,),
    replay_after=(LoadedTenant,),
    own_ports=frozenset({PORT_TYPE}),
)
FEATURES = (FEATURE,)
