"""Rules that are not enforced as they are written, because they have no room or the switch refused a part of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.conjunction import CONJUNCTIONS, PEERS, TARGETS
from antrea.features.network_policy.agent.fqdn import ADDRESSES, FqdnAddress
from antrea.features.network_policy.agent.node_port import NODE_PORTS
from antrea.features.network_policy.agent.peer_class import CLASSES, SharedAddress
from antrea.features.network_policy.agent.priority import has_location
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember
from antrea.features.network_policy.agent.rule import Conjunction
from antrea.features.network_policy.agent.service import SERVICES
from antrea.features.network_policy.agent.service_target import target_services, why_unserved
from antrea.features.network_policy.hole import EXCESS
from antrea.features.network_policy.l7.tenant import outdated, why_not_inspected

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.network_policy.agent.rule import PolicyRule

FULL = "no priority is free"


class RefusedEntries(NamedTuple):
    """Refused entries, and why: of rules by name, interfaces, groups that rules are for, peer groups, Services, names."""

    rules: dict[str, str]
    interfaces: dict[str, str]
    applied: dict[str, str]
    peers: dict[str, str]
    services: dict[str, str]
    names: dict[str, str]
    """Reasons by the pattern that rules have."""


def refused_entries(facts: Facts) -> RefusedEntries:
    """Return all refused entries, usually none."""
    return RefusedEntries(
        rules={
            known.rule: row.why
            for row in facts.refusals(CONJUNCTIONS)
            if (known := facts.get(Conjunction, row.row)) is not None
        },
        interfaces={row.row: row.why for row in facts.refusals(TARGETS)},
        applied={
            member.group: row.why
            for row in facts.refusals(TARGETS)
            if (pod := facts.get(PodInterface, row.row)) is not None
            for member in facts.by(SentAppliedMember, "pod", pod.pod)
        },
        peers=_peers(facts),
        services={row.row: row.why for unit in (SERVICES, NODE_PORTS) for row in facts.refusals(unit)},
        names={
            address.pattern: row.why
            for row in facts.refusals(ADDRESSES)
            if (address := facts.get(FqdnAddress, row.row)) is not None
        },
    )


def _peers(facts: Facts) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for row in facts.refusals(PEERS):
        if (member := facts.get(SentAddressMember, row.row)) is not None:
            reasons[member.group] = row.why
    for row in facts.refusals(CLASSES):
        known = facts.by(SharedAddress, "end", row.row)
        reasons.update((address.named.rpartition(" ")[0], row.why) for address in known)
    return reasons


def why_not(facts: Facts, lacks: RefusedEntries, rule: PolicyRule, interface: str | None = None) -> str:
    """Return why `rule` is not enforced, for one Pod's interface or for any Pod; empty if it is."""
    if rule.exceeds:
        return EXCESS
    if not has_location(facts, rule):
        return FULL
    if why := lacks.rules.get(rule.name):
        return why
    if rule.on_node_ports and (why := why_unserved(facts, rule.applied)):
        return why
    if rule.l7_protocols and (why := why_not_inspected(facts, rule) or outdated(facts, rule)):
        return why
    here = [lacks.interfaces.get(interface)] if interface else map(lacks.applied.get, rule.applied)
    services = (*rule.to_services, *(target_services(facts, rule.applied) if rule.on_node_ports else ()))
    others = (*map(lacks.peers.get, rule.peer.address_groups), *map(lacks.services.get, services))
    names = map(lacks.names.get, rule.fqdns)
    return next(filter(None, (*here, *others, *names)), "")
