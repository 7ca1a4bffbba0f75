"""Policies of policy.networking.k8s.io in a cluster: CRDs, packets between Pods, statuses, antctl."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import workstation
import yaml
from agent_node import antctl
from test_lab_policy import CLOSED, OPEN, pod, policy
from test_lab_policy import pods as pods  # noqa: PLC0414 (a fixture)

from antrea.errors import Unavailable
from lab.process import wait_for

if TYPE_CHECKING:
    from test_lab_policy import Cluster

    from lab.cluster import Lab

GROUP = "policy.networking.k8s.io"
KINDS = ("adminnetworkpolicies", "baselineadminnetworkpolicies", "clusternetworkpolicies")
ALL = ",".join(f"{name}.{GROUP}" for name in KINDS)
WEB = {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}}


def of(name: str) -> list[dict[str, Any]]:
    return [{"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": name}}}}]


def admin(kind: str, name: str, *ingress: dict[str, Any], **spec: Any) -> str:
    """For what `web` receives."""
    version = "v1alpha2" if kind == "ClusterNetworkPolicy" else "v1alpha1"
    found = {"subject": WEB, "ingress": [*ingress], **spec}
    meta = {"name": name}
    return yaml.safe_dump({"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": meta, "spec": found})


def conditions(lab: Lab, kind: str, name: str) -> dict[str, tuple[str, str]]:
    found = json.loads(lab.api.kubectl("get", f"{kind}.{GROUP}", name, "-o", "json"))
    rows = found.get("status", {}).get("conditions", ())
    return {one["type"]: (one["status"], one["message"]) for one in rows}


def test_admin_policies_hold_before_and_after_those_of_kubernetes(pods: Cluster) -> None:
    lab = pods.lab
    near, far = ("near", "web", 80), ("far", "web", 80)
    deny = {"name": "no", "action": "Deny", "from": [{"namespaces": {}}]}
    realized = {
        "Realizable": ("True", "all of the policy can be enforced"),
        "Realized": ("True", "1 of 1 Nodes enforce the policy"),
    }
    try:
        lab.api.apply(admin("BaselineAdminNetworkPolicy", "default", deny))
        pods.becomes({near: CLOSED, far: CLOSED})
        lab.api.apply(policy("p", "web", ingress=[{"from": [pod("near")]}]))
        pods.becomes({near: OPEN, far: CLOSED})
        ports = [{"portNumber": {"port": 80, "protocol": "TCP"}}]
        allow = {"action": "Allow", "from": of("far"), "ports": ports}
        lab.api.apply(admin("AdminNetworkPolicy", "p", allow, deny, priority=10))
        pods.becomes({near: CLOSED, far: OPEN, ("far", "web", 81): CLOSED})
        by_name = [{"tcp": {"destinationPort": {"range": {"start": 79, "end": 81}}}}]
        passes = {"action": "Pass", "from": of("near"), "protocols": by_name}
        lab.api.apply(admin("ClusterNetworkPolicy", "p", passes, deny, tier="Admin", priority=10))
        pods.becomes({near: OPEN, ("near", "web", 82): CLOSED, far: CLOSED})
        for kind, name in (("adminnetworkpolicies", "p"), ("clusternetworkpolicies", "p")):
            wait_for("its status", lambda k=kind, n=name: conditions(lab, k, n) == realized, seconds=60)  # type: ignore[misc]
        assert lab.api.kubectl("get", "cnp", "--no-headers").split()[:3] == ["p", "Admin", "10"]
        shown = antctl(lab, "node-1", "get", "networkpolicy", "-T", "K8SCNP")
        assert "K8sClusterNetworkPolicy:p" in shown
        assert "AdminNetworkPolicy" not in shown.replace("K8sClusterNetworkPolicy", "")
        asked = ("explain", "--from", "default/far", "--to", "default/web", "--port", "80/tcp")
        told = workstation.run(lab, *asked, code=3)
        assert "Ingress rule 1 (no) of K8sClusterNetworkPolicy p in tier Admin (220)" in told.stdout
    finally:
        lab.api.kubectl("delete", ALL, "--all")
        lab.api.kubectl("delete", "networkpolicy", "p", "--ignore-not-found")
    pods.becomes({near: OPEN, far: OPEN})


BAD = (
    ("spec.priority", admin("AdminNetworkPolicy", "bad", priority=1001)),
    ("spec.tier", admin("ClusterNetworkPolicy", "bad", tier="Other", priority=1)),
    ("metadata.name", admin("BaselineAdminNetworkPolicy", "other")),
    ("spec.subject", admin("AdminNetworkPolicy", "bad", priority=1, subject={})),
    ("from", admin("AdminNetworkPolicy", "bad", {"action": "Deny", "from": []}, priority=1)),
    (
        "networks",
        admin(
            *("ClusterNetworkPolicy", "bad"), tier="Admin", priority=1,
            egress=[{"action": "Deny", "to": [{"networks": ["10.0.0.0/33"]}]}],
        ),
    ),
    (
        "no named ports",
        admin(
            *("ClusterNetworkPolicy", "bad"), tier="Admin", priority=1,
            egress=[
                {
                    "action": "Deny",
                    "to": [{"networks": ["10.0.0.0/8"]}],
                    "protocols": [{"destinationNamedPort": "web"}],
                }
            ],
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("where", "text"), BAD, ids=[where for where, _ in BAD])
def test_what_the_api_does_not_allow_is_refused_where_it_is_written(lab: Lab, where: str, text: str) -> None:
    with pytest.raises(Unavailable) as refused:
        lab.api.apply(text)
    assert where in str(refused.value)
