"""Explanations of policies of policy.networking.k8s.io."""

from __future__ import annotations

from typing import Any

import pytest
from explain_world import ask, kube, native, rule, world

Object = dict[str, Any]
WEB = {"pods": {"podSelector": {"matchLabels": {"app": "web"}}}}
ALL: list[Object] = [{"namespaces": {}}]


def admin(name: str, *ingress: Object, **spec: Any) -> Object:
    """For web, of any kind."""
    return {"metadata": {"name": name, "uid": name}, "spec": {"subject": WEB, "ingress": [*ingress], **spec}}


def says(action: str, peers: list[Object] = ALL, **more: Any) -> Object:
    return {"action": action, "from": peers, **more}


def test_the_tiers_of_all_kinds_are_asked_in_their_order() -> None:
    found: dict[str, list[Object]] = {
        "baseline_policies": [admin("default", says("Deny"))],
        "tiered_policies": [],
        "admin_policies": [],
        "cluster_policies": [],
        "kube_policies": [],
    }
    told = [ask(world(None, **found)).sentence]
    found["tiered_policies"].append(admin("b", says("Accept"), tier="Baseline", priority=0))
    told.append(ask(world(None, **found)).sentence)
    found["kube_policies"].append(kube("k", podSelector={}, policyTypes=["Ingress"], ingress=[{"from": []}]))
    told.append(ask(world(None, **found)).sentence)
    found["admin_policies"].append(admin("n", says("Deny"), priority=3))
    told.append(ask(world(None, **found)).sentence)
    found["cluster_policies"].append(native("c", rule("Allow", **{"from": []})))
    told.append(ask(world(None, **found)).sentence)
    found["tiered_policies"].append(admin("t", says("Deny", name="no"), tier="Admin", priority=3))
    told.append(ask(world(None, **found)).sentence)
    assert told == [
        "Ingress rule 0 of BaselineAdminNetworkPolicy default in tier Baseline (254), priority 1 drops the packet.",
        "Ingress rule 0 of K8sClusterNetworkPolicy b in tier Baseline (254), priority 0 allows the packet.",
        "Ingress rule 0 of K8sNetworkPolicy a/k allows the packet.",
        "Ingress rule 0 of AdminNetworkPolicy n in tier Admin (251), priority 3 drops the packet.",
        "Ingress rule 0 (allow) of AntreaClusterNetworkPolicy c in tier application (250), priority 5 allows the packet.",
        "Ingress rule 0 (no) of K8sClusterNetworkPolicy t in tier Admin (220), priority 3 drops the packet.",
    ]


def test_pass_in_the_last_tier_lets_the_packet_through_and_says_so() -> None:
    found = ask(world(tiered_policies=[admin("b", says("Pass"), says("Deny"), tier="Baseline", priority=0)]))
    assert (found.verdict, found.ingress.reason) == ("Allow", "nothing")
    assert "the rule of the baseline tier that matches passes the packet" in found.ingress.sentence
    assert [one.rule.index for one in found.ingress.lost] == [0, 1]


@pytest.mark.parametrize(
    ("kind", "action", "change"),
    [
        ("admin_policies", "Deny", "from Deny to Allow"),
        ("tiered_policies", "Deny", "from Deny to Accept"),
        ("tiered_policies", "Accept", "from Accept to Deny"),
    ],
)
def test_the_action_of_a_rule_is_changed_in_its_own_words(kind: str, action: str, change: str) -> None:
    spec = {"tier": "Admin"} if kind == "tiered_policies" else {}
    only = ask(world(None, **{kind: [admin("p", says(action), says(action), priority=1, **spec)]}))
    assert change in only.changes[0]


def test_a_part_that_is_not_known_closes_the_rule_and_is_said() -> None:
    odd: list[Object] = [{"later": {}}]
    denies = ask(world(tiered_policies=[admin("p", says("Pass", odd), tier="Admin", priority=1)]))
    assert denies.verdict == "Drop"
    (silent,) = denies.ingress.silent
    assert "is not known here" in silent.why
    accepts = ask(
        world(
            tiered_policies=[
                admin("p", says("Accept", odd), tier="Admin", priority=1),
                admin("q", says("Deny"), tier="Admin", priority=2),
            ]
        )
    )
    assert accepts.verdict == "Drop"


def test_a_named_port_has_the_protocol_of_the_pod() -> None:
    protocols = [{"destinationNamedPort": "http"}]
    found = world(tiered_policies=[admin("p", says("Deny", protocols=protocols), tier="Admin", priority=1)])
    assert ask(found, port="8080/tcp").verdict == "Drop"
    assert ask(found, port="8080/udp").verdict == "Allow"
