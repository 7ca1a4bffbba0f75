"""Why a rule is not enforced on this Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.api_server import ApiServerEndpoint
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.node_target import GATE, GATE_OFF, of_node
from antrea.features.network_policy.agent.received import SentAddressMember
from antrea.features.network_policy.hole import EXCESS
from antrea.features.node_policy.rule import NodeRule
from antrea.features.node_policy.unit import BASE, ELEMENTS, GUARD, RULES, SETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.received import SentPolicy

UNKNOWN = "no address of kube-apiserver is known yet, and without the Node could be cut off from it"


def node_failures(facts: Facts, policy: SentPolicy) -> Iterator[tuple[str, str]]:
    """Name of a rule that is for this Node, and why it is not enforced; nothing where all are."""
    found = policy.found
    if not any(of_node(facts, found.applied_to_groups or rule.applied_to_groups) for rule in found.rules):
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
    for row in facts.refusals(ELEMENTS):
        if (member := facts.get(SentAddressMember, row.row)) is not None:
            groups[member.group] = row.why
    for rule in facts.by(NodeRule, "policy", policy.key):
        lacks = (rules.get(rule.key), *map(groups.get, rule.peer.address_groups))
        if why := base or (EXCESS if rule.exceeds else next(filter(None, lacks), "")):
            yield rule.rule.name, why
