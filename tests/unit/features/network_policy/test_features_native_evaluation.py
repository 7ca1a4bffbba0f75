"""The rule that decides between two Pods where policies of Antrea and of Kubernetes meet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from evaluation_world import ALLOWS, FROM, ISOLATES, TO, decided
from native_world import row

from antrea.features.network_policy.audit_mode import AuditMode
from antrea.features.network_policy.controller.evaluation import ISOLATION

SERVER = [TO]
Rule = dict[str, Any]


def rule(action: str, name: str = "", **more: Any) -> Rule:
    return {"action": action, "name": name or action, "from": [FROM], **more}


def cluster(name: str, *rules: Rule, tier: str = "", priority: float = 5, **more: Any) -> Any:
    spec = {"tier": tier, "priority": priority, "appliedTo": SERVER, "ingress": rules, **more}
    return row("ClusterNetworkPolicy", name, spec=spec)


def noted(found: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(found, **fields)


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
    assert decided(policies) == wanted
