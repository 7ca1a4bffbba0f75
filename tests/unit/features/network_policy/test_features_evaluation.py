"""The rule that decides between two Pods: numbers and names as upstream's answer has them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis import core
from antrea.apis.controlplane import NetworkPolicyReference, PodReference
from antrea.apis.controlplane_report import (
    Entity,
    NetworkPolicyEvaluation,
    NetworkPolicyEvaluationRequest,
    NetworkPolicyEvaluationResponse,
    RuleRef,
)
from antrea.apis.networking import NetworkPolicy
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.errors import Invalid, Unavailable
from antrea.facts.cluster import Namespace, Pod
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.network_policy.controller.evaluation import ISOLATION, evaluate
from antrea.features.network_policy.controller.kube_policy import KubePolicy, policy_row

Policies = dict[str, dict[str, Any]]
"""Specs by name, all of Namespace b."""
NOBODY: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "nobody"}}}


def labelled(app: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": app}}}


def pod(namespace: str, name: str, **more: Any) -> Pod:
    meta = {"namespace": namespace, "name": name, "labels": {"app": name}}
    found = {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}, **more}
    row = pod_row(msgspec.convert(found, core.Pod))
    assert row is not None
    return row


def world(policies: Policies, *pods: Pod) -> Facts:
    """All Pods there are besides a/client, b/server, b/other and default/lonely, which are always there."""
    facts = Facts()
    usual = [pod("a", "client"), pod("b", "server"), pod("b", "other"), pod("default", "lonely")]
    for row in [*usual, *pods]:
        facts.put(row)
    for name in ("a", "b", "default"):
        labels = {"kubernetes.io/metadata.name": name}
        facts.put(
            namespace_row(msgspec.convert({"metadata": {"name": name, "labels": labels}}, core.Namespace))
        )
    for number, (name, spec) in enumerate(policies.items()):
        meta = {"namespace": spec.pop("namespace", "b"), "name": name, "uid": f"uid-{number}"}
        facts.put(policy_row(msgspec.convert({"metadata": meta, "spec": spec}, NetworkPolicy)))
    for kind in (Pod, Namespace, KubePolicy):
        facts.synced(kind)
    Engine(facts, [unit for feature in FEATURES for unit in feature.units]).plan()
    return facts


def question(source: str, destination: str) -> NetworkPolicyEvaluation:
    ends = []
    for end in (source, destination):
        namespace, _, name = end.rpartition("/")
        ends.append(Entity(pod=PodReference(namespace=namespace, name=name)))
    return NetworkPolicyEvaluation(
        request=NetworkPolicyEvaluationRequest(source=ends[0], destination=ends[1])
    )


def answer(facts: Facts, source: str = "a/client", destination: str = "b/server") -> tuple[Any, ...] | None:
    """Policy, number, direction and action of the response, whose other words are checked here."""
    asked = question(source, destination)
    found = evaluate(facts, asked)
    assert msgspec.structs.replace(found, response=None) == asked
    if (response := found.response) is None:
        return None
    policy, rule = response.network_policy, response.rule
    assert (policy.type, rule.name) == ("K8sNetworkPolicy", "")
    return f"{policy.namespace}/{policy.name}", response.rule_index, rule.direction, rule.action


FROM_A = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}}
CASES: dict[str, tuple[Policies, tuple[Any, ...] | None]] = {
    "no policy": ({}, None),
    "a policy for others": ({"p": {**labelled("other"), "policyTypes": ["Ingress"]}}, None),
    "only what others may send": ({"p": {**labelled("server"), "policyTypes": ["Egress"]}}, None),
    "nothing may come in": (
        {"p": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
        ("b/p", ISOLATION, "In", None),
    ),
    "no rule is for this peer": (
        {"p": {**labelled("server"), "ingress": [{"from": [NOBODY]}]}},
        ("b/p", ISOLATION, "In", None),
    ),
    "the second rule is for it": (
        {"p": {**labelled("server"), "ingress": [{"from": [NOBODY]}, {"from": [NOBODY, FROM_A]}]}},
        ("b/p", 1, "In", "Allow"),
    ),
    "nothing may go out": (
        {"p": {**labelled("client"), "namespace": "a", "policyTypes": ["Egress"]}},
        ("a/p", ISOLATION, "Out", None),
    ),
    "a rule is for the other end": (
        {
            "p": {
                **labelled("client"),
                "namespace": "a",
                "egress": [{"to": [{"namespaceSelector": {}, **labelled("server")}]}],
                "policyTypes": ["Egress"],
            }
        },
        ("a/p", 0, "Out", "Allow"),
    ),
    "a rule goes before the isolation by another policy": (
        {
            "deny": {"podSelector": {}, "policyTypes": ["Ingress"]},
            "allow": {**labelled("server"), "ingress": [{"from": [FROM_A]}]},
        },
        ("b/allow", 0, "In", "Allow"),
    ),
    "the lower number goes first, then the lower uid": (
        {
            "late": {**labelled("server"), "ingress": [{"from": [NOBODY]}, {"from": [FROM_A]}]},
            "first": {**labelled("server"), "ingress": [{"from": [FROM_A]}]},
            "second": {**labelled("server"), "ingress": [{"from": [FROM_A]}]},
        },
        ("b/first", 0, "In", "Allow"),
    ),
    "a named port of anybody is one of this Pod, too": (
        {
            "p": {
                **labelled("client"),
                "namespace": "a",
                "egress": [{"ports": [{"port": "http"}]}],
                "policyTypes": ["Egress"],
            }
        },
        ("a/p", 0, "Out", "Allow"),
    ),
    "networks are not looked at": (
        {"p": {**labelled("server"), "ingress": [{}, {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}},
        ("b/p", ISOLATION, "In", None),
    ),
}


@pytest.mark.parametrize(("policies", "wanted"), CASES.values(), ids=CASES.keys())
def test_evaluation_names_the_rule(policies: Policies, wanted: tuple[Any, ...] | None) -> None:
    specs = {name: dict(spec) for name, spec in policies.items()}
    for spec in specs.values():
        spec.setdefault("policyTypes", ["Ingress"])
    assert answer(world(specs)) == wanted


ALL: dict[str, Any] = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_evaluation_between_two_pods_that_are_isolated_names_the_sender() -> None:
    assert answer(world({"p": dict(ALL)}), "b/other", "b/server") == ("b/p", ISOLATION, "Out", None)


def test_evaluation_has_no_response_for_a_pod_that_does_not_exist() -> None:
    facts = world({"p": dict(ALL)})
    assert answer(facts, "b/nobody", "b/server") is None
    assert answer(facts, "b/server", "b/nobody") is None


def test_evaluation_of_a_pod_without_an_address_of_its_own_looks_at_the_other_end() -> None:
    host = pod("b", "host", spec={"nodeName": "n", "hostNetwork": True})
    fresh = pod("b", "fresh", status={})
    facts = world({"p": dict(ALL)}, host, fresh)
    for one in ("b/host", "b/fresh"):
        assert answer(facts, one, "b/server") == ("b/p", ISOLATION, "In", None)
        assert answer(facts, "a/client", one) is None


def test_evaluation_of_a_pod_without_a_namespace_means_default() -> None:
    facts = world({"p": {**ALL, "namespace": "default"}})
    found = evaluate(facts, question("lonely", "b/server")).response
    assert found == NetworkPolicyEvaluationResponse(
        network_policy=NetworkPolicyReference(
            type="K8sNetworkPolicy", namespace="default", name="p", uid="uid-0"
        ),
        rule_index=ISOLATION,
        rule=RuleRef(direction="Out"),
    )


def test_evaluation_of_less_than_two_pods_is_refused() -> None:
    facts = world({})
    half = NetworkPolicyEvaluationRequest(source=Entity(pod=PodReference(namespace="a", name="client")))
    for asked in (
        NetworkPolicyEvaluation(),
        NetworkPolicyEvaluation(request=half),
        question("a/client", "b/"),
    ):
        with pytest.raises(Invalid, match="invalid NetworkPolicyEvaluation request entities"):
            evaluate(facts, asked)


def test_evaluation_is_not_made_of_half_of_what_there_is() -> None:
    facts = world({})
    facts.lost(KubePolicy)
    with pytest.raises(Unavailable, match="not complete yet"):
        evaluate(facts, question("a/client", "b/server"))
