"""Why a rule is not enforced on this Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.shown import one_line
from antrea.facts.api_server import ApiServerEndpoint
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.fqdn import DENYING
from antrea.features.network_policy.agent.node_target import GATE, GATE_OFF, groups_of_node
from antrea.features.network_policy.agent.received import SentAddressMember
from antrea.features.network_policy.hole import EXCESS
from antrea.features.node_policy.fqdn import (
    ANSWERS,
    NAME_ELEMENTS,
    NAME_SETS,
    AnswerQueue,
    NodeFqdnAddress,
    UntrustedNodeAnswer,
)
from antrea.features.node_policy.rule import NodePeerPort, NodeRule
from antrea.features.node_policy.unit import (
    BASE,
    ELEMENTS,
    GUARD,
    PORT_ELEMENTS,
    PORT_SETS,
    RULES,
    SERVICE_CHAIN,
    SERVICE_ELEMENTS,
    SETS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.received import SentPolicy

UNKNOWN = "no address of kube-apiserver is known yet, and without the Node could be cut off from it"
UNREAD = "DNS answers to this Node are not read, so that its rules on names have the addresses alone that the agent asks for"
UNCLOSED = "a DNS server that is not trusted (fqdnTrustedDNSServers) gave this Node addresses, which the rule does not deny"
NOT_YET = "the agent has not begun to"


def node_failures(facts: Facts, policy: SentPolicy) -> Iterator[tuple[str, str]]:
    """Yield the name of a rule for this Node, and why it is not enforced; nothing if all are."""
    sent = policy.policy
    if not any(
        groups_of_node(facts, sent.applied_to_groups or rule.applied_to_groups) for rule in sent.rules
    ):
        return
    gates = facts.get(EnabledGates)
    if gates is None or GATE not in gates:
        yield "", GATE_OFF
        return
    if not facts.all(ApiServerEndpoint):
        yield "", UNKNOWN
        return
    base = next((row.why for unit in (BASE, GUARD) for row in facts.refusals(unit)), "")
    rules = {row.row: row.why for row in facts.refusals(RULES)}
    groups = {row.row: row.why for row in facts.refusals(SETS)}
    for row in facts.refusals(PORT_SETS):
        if (port := facts.get(NodePeerPort, row.row)) is not None:
            groups[port.group] = row.why
    for row in (*facts.refusals(ELEMENTS), *facts.refusals(PORT_ELEMENTS)):
        if (member := facts.get(SentAddressMember, row.row)) is not None:
            groups[member.group] = row.why
    names = _names(facts)
    at_services = next(
        (row.why for unit in (SERVICE_CHAIN, SERVICE_ELEMENTS) for row in facts.refusals(unit)), ""
    )
    for rule in facts.by(NodeRule, "policy", policy.key):
        peers = (*map(groups.get, rule.peer.address_groups), *map(names.get, rule.fqdns))
        lacks = (rules.get(rule.key), *peers, _unread(facts) if rule.fqdns else "", _unclosed(facts, rule))
        lacks = (*lacks, "" if rule.egress else at_services)
        if why := base or (EXCESS if rule.exceeds else next(filter(None, lacks), "")):
            yield rule.rule.name, why


def _names(facts: Facts) -> dict[str, str]:
    """Return patterns whose addresses are not all there, and why."""
    reasons = {row.row: row.why for row in facts.refusals(NAME_SETS)}
    for row in facts.refusals(NAME_ELEMENTS):
        if (address := facts.get(NodeFqdnAddress, row.row)) is not None:
            reasons[address.pattern] = row.why
    return reasons


def _unclosed(facts: Facts, rule: NodeRule) -> str:
    """Return which DNS server gave this Node addresses that the rule should deny, and does not; empty if none."""
    if rule.action not in DENYING:
        return ""
    for pattern in rule.fqdns:
        for row in facts.by(UntrustedNodeAnswer, "pattern", pattern):
            return f"{UNCLOSED}: {row.server} on {one_line(pattern)}"
    return ""


def _unread(facts: Facts) -> str:
    """Return why the agent does not get the DNS answers that this Node receives; empty if it does."""
    row = facts.get(AnswerQueue, "")
    lacks = next((refused.why for refused in facts.refusals(ANSWERS)), row.why_not if row else NOT_YET)
    return f"{UNREAD}: {lacks}" if lacks else ""
