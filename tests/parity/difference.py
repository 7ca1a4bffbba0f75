"""What differs from recordings of upstream's controller on purpose, with the reason; tests compare all else.

The differences are found in the recorded objects by what makes them, not by names, so that other recordings can be replayed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis import controlplane as cp

REASONS = {
    "policyTypes": "Kubernetes isolates in the directions of policyTypes alone; upstream in each that has rules",
    "EgressGroup": "upstream empties the group of an Egress whose address is another's, and its Pods leave with their Node's"
    " address; here agents need the group to let nothing of these Pods out",
    "relative rule": "upstream takes a rule with peers in relation to Namespaces for one about Pods of others",
}
DIRECTIONS = {"Ingress": "In", "Egress": "Out"}
Named = dict[str, Any]


def without_other_directions(
    policies: Iterable[cp.NetworkPolicy], objects: Iterable[Named]
) -> Iterator[cp.NetworkPolicy]:
    """Upstream's internal policies without the rules of directions that are not in policyTypes (REASONS: policyTypes)."""
    types = {
        (one["metadata"].get("namespace", "default"), one["metadata"]["name"]): one["spec"].get(
            "policyTypes", ()
        )
        for one in objects
        if one["apiVersion"] == "networking.k8s.io/v1" and one["kind"] == "NetworkPolicy"
    }
    for policy in policies:
        source = policy.source_ref
        found = source and source.type == "K8sNetworkPolicy" and types.get((source.namespace, source.name))
        if not found:
            yield policy
            continue
        kept = {DIRECTIONS[kind] for kind in found}
        rules = tuple(rule for rule in policy.rules if rule.direction in kept)
        yield msgspec.structs.replace(policy, rules=rules)


def groups_of(policies: Iterable[cp.NetworkPolicy], resource: str) -> set[str]:
    """Groups of a kind that policies name."""
    if resource == "appliedtogroups":
        return {
            name
            for policy in policies
            for names in (policy.applied_to_groups, *(rule.applied_to_groups for rule in policy.rules))
            for name in names
        }
    peers = (peer for policy in policies for rule in policy.rules for peer in (rule.from_, rule.to))
    return {name for peer in peers for name in peer.address_groups}


def has_anothers_address(egress: Named) -> bool:
    """Whether a recorded Egress asks for an address that it has not been given (REASONS: EgressGroup)."""
    conditions = egress.get("status", {}).get("conditions", ())
    refused = any((one["type"], one["status"]) == ("IPAllocated", "False") for one in conditions)
    return bool(refused and egress["spec"].get("egressIP"))


def has_relative_rule(answer: Named, objects: Iterable[Named]) -> bool:
    """Whether the policy that an evaluation names has a rule with peers in relation to Namespaces (REASONS: relative rule).

    Upstream takes that rule for one about the two Pods, and ends with it or, if it passes, with what comes after.
    """
    source = (answer.get("response") or {}).get("networkPolicy", {})
    return any(
        '"namespaces":' in json.dumps(one["spec"])
        for one in objects
        if one["metadata"]["name"] == source.get("name")
        and one["apiVersion"].startswith("crd.antrea.io/")
        and source.get("namespace", "") in ("", one["metadata"].get("namespace", ""))
    )


def answer_in(text: str, case: str) -> Named:
    """The answer in JSON that a recording has, on one line or several; the test fails if there is none."""
    start = text.find("\n{") + 1 if not text.startswith("{") else 0
    if start == 0 and not text.startswith("{"):
        pytest.fail(f"the recording of {case} has no answer in JSON")
    found: Named = json.JSONDecoder().raw_decode(text[start:])[0]
    return found
