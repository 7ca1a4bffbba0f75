"""What a policy of Antrea's own may say and nobody does yet: its author is told, and what happens instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.admission import Warn
from antrea.features.network_policy.native_peer import STRETCHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.apis.crd.network_policy import (
        AppliedTo,
        ClusterNetworkPolicySpec,
        NetworkPolicySpec,
        Rule,
    )

NOTHING = "it matches nothing"


def unbuilt_parts(spec: ClusterNetworkPolicySpec | NetworkPolicySpec) -> Iterator[Warn]:
    """One sentence for each; the policy is admitted."""
    found = dict(_targets("spec.appliedTo", spec.applied_to))
    for direction, rules in (("ingress", spec.ingress), ("egress", spec.egress)):
        for index, rule in enumerate(rules):
            path = f"spec.{direction}[{index}]"
            found |= dict(_targets(f"{path}.appliedTo", rule.applied_to))
            found |= dict(_parts(path, rule))
    for path, instead in found.items():
        yield Warn(f"{path} is not built yet: {instead}")


def _targets(path: str, applied: Sequence[AppliedTo]) -> Iterator[tuple[str, str]]:
    for number, one in enumerate(applied):
        for name, given in (
            ("nodeSelector", one.node_selector),
            ("service", one.service),
            ("externalEntitySelector", one.external_entity_selector),
        ):
            if given is not None:
                yield f"{path}[{number}].{name}", "the policy does not hold there"


def _parts(path: str, rule: Rule) -> Iterator[tuple[str, str]]:
    for number, service in enumerate(rule.to_services):
        if service.scope == STRETCHED:
            yield f"{path}.toServices[{number}].scope", NOTHING
    if rule.l7_protocols:
        yield f"{path}.l7Protocols", "all that the rule names is dropped"
    for number, protocol in enumerate(rule.protocols):
        if protocol.igmp is not None:
            yield f"{path}.protocols[{number}].igmp", NOTHING
    for number, peer in enumerate(rule.to):
        if peer.fqdn:
            yield f"{path}.to[{number}].fqdn", NOTHING
