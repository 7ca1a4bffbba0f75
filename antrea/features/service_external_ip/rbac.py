"""Rights at kube-apiserver for Services with external IPs."""

from __future__ import annotations

from antrea.features.framework.rbac import Rule

CONTROLLER_RULES = (
    Rule("addresses of pools for Services of type LoadBalancer", "", ("services",), ("get",)),
    Rule("", "", ("services/status",), ("patch",)),
)
