"""Explanations of clusters with audited policies: what becomes of a packet, and what would with them enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from explain_world import NAMESPACES, NODES, PODS, Object, ask, kube, native, rule, world

from antrea.antctl.explain.source import Source
from antrea.antctl.explain.text import text
from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCE, ENFORCEMENT
from antrea.explain.objects import objects
from antrea.explain.world import World

if TYPE_CHECKING:
    from antrea.explain.answer import Answer


def noted(found: Object, **notes: str) -> Object:
    return found | {"metadata": {**found["metadata"], "annotations": notes}}


def audited(found: Object) -> Object:
    return noted(found, **{ENFORCEMENT: AUDIT})


def told(found: Answer) -> tuple[str, Any]:
    return found.verdict, found.audit and (found.audit.verdict, found.audit.sentence)


def shop(spaces: list[Object], **found: list[Object]) -> World:
    """With Namespaces of its own."""
    return World(objects({"pods": PODS, "nodes": NODES, "namespaces": spaces, **found}))


BY_RULE = "Ingress rule 0 (drop) of AntreaClusterNetworkPolicy p in tier application (250), priority 5 drops the packet."
ISOLATED = "Pod a/web is isolated for ingress by NetworkPolicy a/k, and no rule allows it."


def test_an_audited_policy_is_absent_and_what_it_would_do_is_said() -> None:
    shop = world(cluster_policies=[audited(native("p", rule("Drop")))])
    found = ask(shop)
    assert told(found) == ("Allow", ("Drop", BY_RULE))
    lines = text(found, (), Source(shop.objects)).splitlines()
    assert lines[2] == f"Audit: Drop if audited policies were enforced: {BY_RULE}"


def test_isolation_by_an_audited_policy_of_kubernetes_is_absent() -> None:
    assert told(ask(world(kube_policies=[audited(kube("k", podSelector={}, policyTypes=["Ingress"]))]))) == (
        "Allow",
        ("Drop", ISOLATED),
    )


def test_only_the_rules_named_are_audited_and_what_an_enforced_one_decides_before_is_no_news() -> None:
    policy = noted(native("p", rule("Allow"), rule("Drop")), **{AUDITED_RULES: "drop"})
    assert told(ask(world(cluster_policies=[policy]))) == ("Allow", None)
    policy = noted(native("p", rule("Allow"), rule("Drop")), **{AUDITED_RULES: " allow "})
    verdict, then = told(ask(world(cluster_policies=[policy])))
    assert (verdict, then[0]) == ("Drop", "Allow")


@pytest.mark.parametrize(
    ("word", "verdict"), [({}, "Allow"), ({ENFORCEMENT: ENFORCE}, "Drop"), ({ENFORCEMENT: "audti"}, "Drop")]
)
def test_a_namespace_audits_its_policies_unless_they_have_a_word_of_their_own(
    word: dict[str, str], verdict: str
) -> None:
    spaces = [
        noted(one, **{ENFORCEMENT: AUDIT}) if one["metadata"]["name"] == "a" else one for one in NAMESPACES
    ]
    policy = noted(kube("k", podSelector={}, policyTypes=["Ingress"]), **word)
    assert ask(shop(spaces, kube_policies=[policy])).verdict == verdict


def test_policies_of_the_cluster_are_not_audited_by_a_namespace() -> None:
    spaces = [noted(one, **{ENFORCEMENT: AUDIT}) for one in NAMESPACES]
    assert ask(shop(spaces, cluster_policies=[native("p", rule("Drop"))])).verdict == "Drop"
