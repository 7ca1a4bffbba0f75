"""The rule that decides between two Pods where policies of Antrea and of Kubernetes meet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from native_world import Told, pod, row, space

from antrea.apis.controlplane import PodReference
from antrea.apis.controlplane_report import (
    Entity,
    NetworkPolicyEvaluation,
    NetworkPolicyEvaluationRequest,
)
from antrea.apis.networking import NetworkPolicy
from antrea.facts.cluster import Namespace, Pod
from antrea.features.network_policy.audit_mode import AuditMode
from antrea.features.network_policy.controller.evaluation import ISOLATION, evaluate
from antrea.features.network_policy.controller.kube_policy import KubePolicy, policy_row

TO, FROM = ({"podSelector": {"matchLabels": {"app": name}}} for name in ("server", "client"))
SERVER = [TO]
Rule = dict[str, Any]


def rule(action: str, name: str = "", **more: Any) -> Rule:
    return {"action": action, "name": name or action, "from": [FROM], **more}


def cluster(name: str, *rules: Rule, tier: str = "", priority: float = 5, **more: Any) -> Any:
    spec = {"tier": tier, "priority": priority, "appliedTo": SERVER, "ingress": rules, **more}
    return row("ClusterNetworkPolicy", name, spec=spec)


def kube(name: str, **spec: Any) -> KubePolicy:
    meta = {"name": name, "namespace": "b", "uid": f"uid-{name}"}
    found = {"metadata": meta, "spec": {**TO, "policyTypes": ["Ingress"], **spec}}
    return policy_row(msgspec.convert(found, NetworkPolicy))


def admin(kind: str, name: str, action: str, **more: Any) -> Any:
    subject = {"pods": {"namespaceSelector": {}, **TO}}
    one = {"name": action, "action": action, "from": [{"pods": {"namespaceSelector": {}, **FROM}}]}
    return row(kind, name, spec={"priority": 0, "subject": subject, "ingress": [one], **more})


def noted(found: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(found, **fields)


ISOLATES = kube("isolates")
ALLOWS = kube("allows", ingress=[{"from": [{**FROM, "namespaceSelector": {}}]}])
PASSES = cluster("passes", rule("Pass"), tier="emergency")
CASES: dict[str, tuple[list[Any], tuple[Any, ...] | None]] = {
    "a policy for it": ([cluster("p", rule("Drop"))], ("p", 0, "In", "Drop", "Drop")),
    "audited policies and rules decide nothing": (
        [
            noted(cluster("whole", rule("Drop"), tier="emergency"), audit=AuditMode(whole=True)),
            noted(cluster("p", rule("Drop", "a"), rule("Allow", "b")), audit=AuditMode(rules=("a",))),
            noted(ISOLATES, audit=AuditMode(whole=True)),
        ],
        ("p", 1, "In", "b", "Allow"),
    ),
    "the Tier counts before the priority": (
        [
            cluster("late", rule("Drop"), tier="platform", priority=1),
            cluster("p", rule("Allow"), tier="emergency", priority=9),
        ],
        ("p", 0, "In", "Allow", "Allow"),
    ),
    "the priority counts before the number": (
        [
            cluster("late", rule("Drop"), priority=2),
            cluster("p", rule("Drop", "x"), rule("Allow"), priority=1),
        ],
        ("p", 0, "In", "x", "Drop"),
    ),
    "the number among rules of its direction": (
        [cluster("p", {"action": "Drop", "name": "any"}, rule("Reject"))],
        ("p", 1, "In", "Reject", "Reject"),
    ),
    "policies of Kubernetes come after the Tier application": (
        [ISOLATES, ALLOWS, cluster("p", rule("Drop"))],
        ("p", 0, "In", "Drop", "Drop"),
    ),
    "and before the Tier baseline": (
        [ISOLATES, cluster("late", rule("Allow"), tier="baseline")],
        ("isolates", ISOLATION, "In", "", None),
    ),
    "admin policies come before those of Kubernetes": (
        [ISOLATES, ALLOWS, admin("AdminNetworkPolicy", "p", "Deny")],
        ("p", 0, "In", "Deny", "Drop"),
    ),
    "and baseline ones after them": (
        [ISOLATES, admin("BaselineAdminNetworkPolicy", "late", "Allow")],
        ("isolates", ISOLATION, "In", "", None),
    ),
    "what they pass on is decided by the last tier, too": (
        [
            admin("K8sClusterNetworkPolicy", "passes", "Pass", tier="Admin"),
            admin("AdminNetworkPolicy", "never", "Deny"),
            admin("BaselineAdminNetworkPolicy", "p", "Deny"),
        ],
        ("p", 0, "In", "Deny", "Drop"),
    ),
    "what is passed on is decided by Kubernetes' policies": (
        [PASSES, cluster("never", rule("Drop")), ISOLATES, ALLOWS],
        ("allows", 0, "In", "", "Allow"),
    ),
    "or by the Tier baseline": (
        [PASSES, cluster("never", rule("Drop")), cluster("p", rule("Drop"), tier="baseline")],
        ("p", 0, "In", "Drop", "Drop"),
    ),
    "or by nobody": ([PASSES, cluster("never", rule("Drop"))], ("passes", 0, "In", "Pass", "Pass")),
    "a rule for others does not count": (
        [cluster("p", rule("Drop", appliedTo=[FROM]), rule("Allow", appliedTo=SERVER), appliedTo=[])],
        ("p", 1, "In", "Allow", "Allow"),
    ),
    "a group is known by its name": (
        [row("ClusterGroup", "g", spec=FROM), cluster("p", {**rule("Drop"), "from": [{"group": "g"}]})],
        ("p", 0, "In", "Drop", "Drop"),
    ),
    "a policy of a Namespace": (
        [
            row(
                "NetworkPolicy",
                "p",
                "a",
                spec={
                    "priority": 1,
                    "appliedTo": [FROM],
                    "egress": [{"action": "Drop", "name": "no", "to": [{**TO, "namespaceSelector": {}}]}],
                },
            )
        ],
        ("p", 0, "Out", "no", "Drop"),
    ),
}


@pytest.mark.parametrize(("policies", "wanted"), CASES.values(), ids=CASES.keys())
def test_evaluation_names_the_rule_of_any_policy(policies: list[Any], wanted: tuple[Any, ...] | None) -> None:
    world = Told().put(
        space("a"), space("b"), pod("client", "a", app="client"), pod("server", "b", app="server")
    )
    for kind in (Pod, Namespace, KubePolicy):
        world.facts.synced(kind)
    world.put(*policies)
    ends = [
        Entity(pod=PodReference(namespace=namespace, name=name))
        for namespace, name in (("a", "client"), ("b", "server"))
    ]
    asked = NetworkPolicyEvaluation(
        request=NetworkPolicyEvaluationRequest(source=ends[0], destination=ends[1])
    )
    found = evaluate(world.facts, asked).response
    assert found is not None
    told = found.rule
    assert (found.network_policy.name, found.rule_index, told.direction, told.name, told.action) == wanted
