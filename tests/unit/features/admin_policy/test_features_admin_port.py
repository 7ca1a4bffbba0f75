"""Names of ports in policies of policy.networking.k8s.io, which have no protocol beside them."""

from __future__ import annotations

from typing import Any

from admin_world import admin_policy
from named_port_world import condition, pod, said


def tiered(**spec: Any) -> Any:
    given = {"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, **spec}
    return admin_policy("ClusterNetworkPolicy", "p", spec=given)


def test_admin_policies_name_ports_without_a_protocol() -> None:
    protocols = [{"destinationNamedPort": "metrics"}]
    spec = {"ingress": [{"action": "Deny", "from": [{"namespaces": {}}], "protocols": protocols}]}
    sentence = "spec.ingress[0]: no Pod that the policy is for has a port named 'metrics': the rule matches nothing by it"
    assert condition(tiered(**spec), pod("w", "web")) == ("True", sentence)
    assert said(tiered(**spec), pod("w", "web")) == [sentence]
    assert said(tiered(**spec), pod("w", "web", "metrics", protocol="UDP")) == []
    out = {"egress": [{"action": "Accept", "to": [{"namespaces": {}}], "protocols": protocols}]}
    assert len(said(tiered(**out), pod("w", "web"))) == 1
