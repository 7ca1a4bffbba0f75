"""Deliberate differences from recordings are found by what makes them; without recordings."""

from __future__ import annotations

from typing import Any

import pytest
from difference import (
    answer_in,
    groups_of,
    has_anothers_address,
    has_relative_rule,
    without_other_directions,
)

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata

NOBODY = cp.NetworkPolicyPeer()


def policy(*directions: str, kind: str = "K8sNetworkPolicy") -> cp.NetworkPolicy:
    rules = tuple(
        cp.NetworkPolicyRule(
            direction=direction,
            from_=cp.NetworkPolicyPeer(address_groups=(direction,)) if direction == "In" else NOBODY,
            to=cp.NetworkPolicyPeer(address_groups=(direction,)) if direction == "Out" else NOBODY,
            enable_logging=False,
        )
        for direction in directions
    )
    source = cp.NetworkPolicyReference(type=kind, namespace="ns", name="p", uid="u")
    return cp.NetworkPolicy(metadata=ObjectMetadata(name="u"), rules=rules, source_ref=source)


def made(types: list[str]) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "ns"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta,
        "spec": {"policyTypes": types} if types else {},
    }


@pytest.mark.parametrize(
    ("types", "left"),
    [
        (["Egress"], {"Out"}),
        (["Ingress"], {"In"}),
        (["Ingress", "Egress"], {"In", "Out"}),
        ([], {"In", "Out"}),
    ],
)
def test_rules_of_directions_that_a_policy_does_not_have_are_left_out(
    types: list[str], left: set[str]
) -> None:
    found = list(without_other_directions([policy("In", "Out")], [made(types)]))
    assert groups_of(found, "addressgroups") == left
    other = policy("In", "Out", kind="AntreaNetworkPolicy")
    assert list(without_other_directions([other], [made(types)])) == [other]


@pytest.mark.parametrize(
    ("spec", "status", "wanted"),
    [
        ({"egressIP": "192.0.2.1"}, "False", True),
        ({"egressIP": "192.0.2.1"}, "True", False),
        ({"externalIPPool": "p"}, "False", False),
    ],
)
def test_an_egress_that_asks_for_the_address_of_another_is_known_by_its_status(
    spec: dict[str, str], status: str, wanted: bool
) -> None:
    conditions = [{"type": "IPAllocated", "status": status}]
    assert has_anothers_address({"spec": spec, "status": {"conditions": conditions}}) is wanted
    assert not has_anothers_address({"spec": spec})


def test_evaluations_beside_a_rule_in_relation_to_namespaces_are_known() -> None:
    rules = [
        {"name": "self", "action": "Pass", "from": [{"namespaces": {"match": "Self"}}]},
        {"name": "rest", "action": "Drop", "from": [{"podSelector": {}}]},
    ]
    one = {"apiVersion": "crd.antrea.io/v1beta1", "metadata": {"name": "p"}, "spec": {"ingress": rules}}
    other = {"apiVersion": "crd.antrea.io/v1beta1", "metadata": {"name": "q"}, "spec": {"ingress": rules[1:]}}
    for name, wanted in (("p", True), ("q", False), ("r", False)):
        answer = {"response": {"networkPolicy": {"name": name}}}
        assert has_relative_rule(answer, [one, other]) is wanted
    assert not has_relative_rule({}, [one])


@pytest.mark.parametrize("text", ['# $ curl\n{"a": 1}\n# exit', '{\n  "a": 1\n}\n', '# x {y}\n{"a":\n1}'])
def test_an_answer_is_read_on_one_line_or_several(text: str) -> None:
    assert answer_in(text, "case") == {"a": 1}


def test_a_recording_without_an_answer_fails_by_its_name() -> None:
    with pytest.raises(pytest.fail.Exception, match="recording of case has no answer"):
        answer_in("# $ curl\nrefused\n", "case")
