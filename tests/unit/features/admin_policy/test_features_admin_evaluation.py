"""The rule that decides between two Pods where policies of policy.networking.k8s.io and of Kubernetes meet."""

from __future__ import annotations

from typing import Any

import pytest
from admin_world import admin_policy
from evaluation_world import ALLOWS, FROM, ISOLATES, TO, decided

from antrea.features.network_policy.controller.evaluation import ISOLATION


def admin(kind: str, name: str, action: str, **more: Any) -> Any:
    subject = {"pods": {"namespaceSelector": {}, **TO}}
    one = {"name": action, "action": action, "from": [{"pods": {"namespaceSelector": {}, **FROM}}]}
    return admin_policy(kind, name, spec={"priority": 0, "subject": subject, "ingress": [one], **more})


CASES: dict[str, tuple[list[Any], tuple[Any, ...]]] = {
    "they come before policies of Kubernetes": (
        [ISOLATES, ALLOWS, admin("AdminNetworkPolicy", "p", "Deny")],
        ("p", 0, "In", "Deny", "Drop"),
    ),
    "baseline ones come after these": (
        [ISOLATES, admin("BaselineAdminNetworkPolicy", "late", "Allow")],
        ("isolates", ISOLATION, "In", "", None),
    ),
    "what they pass on is decided by the last tier, too": (
        [
            admin("ClusterNetworkPolicy", "passes", "Pass", tier="Admin"),
            admin("AdminNetworkPolicy", "never", "Deny"),
            admin("BaselineAdminNetworkPolicy", "p", "Deny"),
        ],
        ("p", 0, "In", "Deny", "Drop"),
    ),
}


@pytest.mark.parametrize(("policies", "wanted"), CASES.values(), ids=CASES.keys())
def test_evaluation_names_the_rule_of_an_admin_policy(policies: list[Any], wanted: tuple[Any, ...]) -> None:
    assert decided(policies) == wanted
