"""Validation of an Antrea ClusterNetworkPolicy or NetworkPolicy; the first fault is the answer.

parity: pkg/controller/networkpolicy/validate.go validatePolicy, in its order
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from antrea.apis.crd.tier import Tier
from antrea.apis.shown import one_word
from antrea.errors import Invalid
from antrea.features.framework.admission import Find, Patch, Warn
from antrea.features.framework.selector_warning import selector_doubts
from antrea.features.network_policy.admission.peer import check_applied_to, check_peers, fields_set
from antrea.features.network_policy.admission.rule import (
    check_igmp,
    check_l7,
    check_multicast,
    check_ports,
    port_doubts,
)
from antrea.features.network_policy.audit_mode import audit_mode, check_audit
from antrea.features.network_policy.confirmation import check_confirmation
from antrea.features.network_policy.controller.unbuilt import unbuilt_parts, unjudged_parts
from antrea.features.network_policy.rule_name import rule_name
from antrea.features.network_policy.tier import (
    BASELINE,
    DEFAULT,
    DEFAULT_NAMES,
    STATIC,
    TIERS,
    TierRow,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from antrea.apis.crd.network_policy import (
        AppliedTo,
        ClusterNetworkPolicy,
        ClusterNetworkPolicySpec,
        NetworkPolicy,
        NetworkPolicySpec,
        Rule,
    )
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps

    PolicySpec = ClusterNetworkPolicySpec | NetworkPolicySpec

_FQDN = re.compile(r"[-0-9a-zA-Z.*]+")


def validate_policy(facts: Facts, review: Review[ClusterNetworkPolicy] | Review[NetworkPolicy]) -> Steps:
    """Validate a policy. Raises Invalid."""
    spec = review.new.spec
    annotations = review.new.metadata.annotations
    check_confirmation(annotations)
    check_audit(annotations, [rule.name for _, rule in _rules(spec)])
    yield from _find_tier(facts, spec.tier)
    _check_pass(spec)
    _check_names(spec)
    _check_applied_to(spec)
    check_peers(spec.ingress, spec.egress)
    _check_service_peers(spec)
    _check_fqdn(spec.egress)
    check_multicast(spec.egress)
    check_igmp(spec.ingress, spec.egress)
    check_l7(facts, spec.ingress, spec.egress)
    check_ports(spec.ingress, spec.egress)
    yield from _odd_names(spec)
    yield from port_doubts(spec.ingress, spec.egress)
    yield from selector_doubts(spec)
    yield from map(Warn, filter(None, unbuilt_parts(spec)))
    yield from map(Warn, unjudged_parts(spec, audit_mode(annotations)))


def name_policy(_: Facts, review: Review[dict[str, Any]]) -> Iterable[Patch]:
    """Yield names for unnamed rules, and the default tier. The object is read as sent, since names depend on all of it."""
    spec = _section(review.new, "spec")
    for direction in ("ingress", "egress"):
        for index, rule in enumerate(spec.get(direction) or ()):
            if isinstance(rule, dict) and not rule.get("name"):
                yield Patch(f"/spec/{direction}/{index}/name", rule_name(direction, rule))
    if not spec.get("tier"):
        yield Patch("/spec/tier", DEFAULT)


def _section(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = tree.get(name)
    if not isinstance(section, dict):
        raise Invalid(name, "must be an object")
    return section


def _find_tier(facts: Facts, name: str) -> Steps:
    # a policy may come right behind its Tier, before our watch has seen that
    known = not name or name in STATIC | DEFAULT_NAMES or facts.get(TierRow, name) is not None
    if not known and (yield Find(TIERS.path, name, Tier)) is None:
        raise Invalid("spec.tier", f"tier {name} does not exist")


def _rules(spec: PolicySpec) -> Iterator[tuple[str, Rule]]:
    for index, rule in enumerate(spec.ingress):
        yield f"spec.ingress[{index}]", rule
    for index, rule in enumerate(spec.egress):
        yield f"spec.egress[{index}]", rule


def _check_pass(spec: PolicySpec) -> None:
    for path, rule in _rules(spec) if spec.tier.lower() == BASELINE else ():
        if rule.action == "Pass":
            raise Invalid(f"{path}.action", "`Pass` action should not be set for Baseline Tier policy rules")


def _check_names(spec: PolicySpec) -> None:
    seen = set()
    for path, rule in _rules(spec):
        if rule.name in seen:
            raise Invalid(f"{path}.name", "rules names must be unique within the policy")
        seen.add(rule.name)


def _odd_names(spec: PolicySpec) -> Iterator[Warn]:
    """Warn about names that are not labels; upstream stores any text."""
    for path, rule in _rules(spec):
        if (word := one_word(rule.name)) != rule.name:
            yield Warn(f"{path}.name: in the audit log it is {word}")


def _check_applied_to(spec: PolicySpec) -> None:
    rules = list(_rules(spec))
    number = sum(bool(rule.applied_to) for _, rule in rules)
    if spec.applied_to and number:
        raise Invalid("spec.appliedTo", "appliedTo should not be set in both spec and rules")
    if not spec.applied_to and not number:
        raise Invalid("spec.appliedTo", "appliedTo needs to be set in either spec or rules")
    if number and number != len(rules):
        path = next(path for path, rule in rules if not rule.applied_to)
        raise Invalid(
            f"{path}.appliedTo", "appliedTo field should either be set in all rules or in none of them"
        )
    check_applied_to(spec.applied_to, "spec.appliedTo", egress=bool(spec.egress))
    for path, rule in rules:
        check_applied_to(rule.applied_to, f"{path}.appliedTo", egress=path.startswith("spec.egress"))


def _for_services(applied_to: Sequence[AppliedTo]) -> bool:
    return bool(applied_to) and applied_to[0].service is not None


def _check_service_peers(spec: PolicySpec) -> None:
    for index, rule in enumerate(spec.ingress):
        if not (_for_services(spec.applied_to) or _for_services(rule.applied_to)):
            continue
        for number, peer in enumerate(rule.from_):
            if peer.ip_block is None or fields_set(peer) > 1:
                raise Invalid(
                    f"spec.ingress[{index}].from[{number}]",
                    "a rule/policy that is applied to Services can only use ipBlock to select workloads",
                )


def _check_fqdn(egress: Sequence[Rule]) -> None:
    for index, rule in enumerate(egress):
        for number, peer in enumerate(rule.to):
            if peer.fqdn and not _FQDN.fullmatch(peer.fqdn):
                raise Invalid(
                    f"spec.egress[{index}].to[{number}].fqdn",
                    f"invalid characters in egress rule fqdn field: {peer.fqdn}",
                )
