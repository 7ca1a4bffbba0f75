"""`antctl policy replay` judges policies as the cluster would once they are applied, by all Pods that they may tell apart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from replay_world import changed, pod, source_of

from antrea.antctl.policy.recommendation import Link
from antrea.antctl.policy.whatif import MAX_PODS, replay, with_objects
from antrea.explain.objects import objects

CLOSED = {
    "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "shop"},
}  # fmt: skip
PAIR = Link("workload/shop/web", "workload/shop/db", 80, 6, 1, 0)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"podSelector": {"matchLabels": {"canary": "yes"}}, "policyTypes": ["Egress"]}, id="second Pod"),
        pytest.param(
            {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
            id="IPv6 alone",
        ),
        pytest.param(
            {"podSelector": {"matchLabels": {"statefulset.kubernetes.io/pod-name": "web-2"}}, "policyTypes": ["Egress"]},
            id="by the name of a Pod",
        ),
        pytest.param({"podSelector": {}}, id="without policyTypes"),
        pytest.param(
            {"podSelector": {"matchLabels": {"app": "db"}}, "egress": [{}]}, id="egress without policyTypes"
        ),
    ],
)  # fmt: skip
def test_a_connection_changes_if_it_does_for_any_pod_and_family(spec: dict[str, Any]) -> None:
    named = "statefulset.kubernetes.io/pod-name"
    pods = [
        pod("shop", "web-0", {"app": "web", named: "web-0"}, "10.0.0.1", "fd00::1"),
        pod("shop", "web-1", {"app": "web", "canary": "yes", named: "web-1"}, "10.0.0.2", "fd00::2"),
        pod("shop", "web-2", {"app": "web", named: "web-2"}, "10.0.0.3", "fd00::3"),
        pod("shop", "db-0", {"app": "db", named: "db-0"}, "10.0.0.4", "fd00::4"),
    ]
    assert changed(pods, [CLOSED | {"spec": spec}], [PAIR]) == {PAIR}


def test_connections_whose_direction_is_unknown_are_not_judged() -> None:
    pods = [
        pod("shop", "web-0", {"app": "web"}, "10.0.0.1"),
        pod("shop", "db-0", {"app": "db"}, "10.0.0.4"),
    ]
    source = source_of(pods)
    found = replay(source, source.objects, [PAIR._replace(connections=3, denied=1, unknown=2)])
    assert (found.judged, found.unjudged) == (
        0,
        ["shop/web -> shop/db TCP/80: direction: which end opened these connections is unknown"],
    )
    assert replay(source, source.objects, [PAIR._replace(connections=3, unknown=2)]).judged == 1


def test_pods_beyond_those_that_are_judged_are_named() -> None:
    pods = [
        pod("shop", f"web-{n}", {"app": "web", "n": str(n)}, f"10.0.0.{n}") for n in range(1, MAX_PODS + 3)
    ]
    source = source_of([*pods, pod("shop", "db-0", {"app": "db"}, "10.0.1.1")])
    found = replay(source, source.objects, [PAIR])
    assert found.unjudged == [
        "shop/web -> shop/db TCP/80: 2 Pods of shop/web that differ in labels, ports or ServiceAccount"
    ]


def antrea_policy(action: str, created: str) -> dict[str, Any]:
    applied = [{"podSelector": {"matchLabels": {"app": "db"}}}]
    return {
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy",
        "metadata": {"name": action.lower(), "namespace": "shop", "uid": action, "creationTimestamp": created},
        "spec": {"priority": 5, "appliedTo": applied, "ingress": [{"action": action}]},
    }  # fmt: skip


def test_a_new_policy_is_younger_than_those_that_are_there() -> None:
    """At equal tier and priority the older one decides, whatever age the file has."""
    pods = [pod("shop", "web-0", {"app": "web"}, "10.0.0.1"), pod("shop", "db-0", {"app": "db"}, "10.0.0.2")]
    source = source_of(pods)
    there = objects({"policies": [antrea_policy("Drop", "2026-01-01T00:00:00Z")]})
    source = source._replace(objects=msgspec.structs.replace(source.objects, policies=there.policies))
    found = replay(source, with_objects(source, [antrea_policy("Allow", "2001-01-01T00:00:00Z")]), [PAIR])
    assert (found.changed, found.judged) == ([], 1)
