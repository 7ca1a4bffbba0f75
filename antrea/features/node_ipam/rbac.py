"""Right at kube-apiserver to give Nodes their Pod CIDRs."""

from __future__ import annotations

from antrea.features.framework.rbac import Rule

CONTROLLER_RULES = (Rule("Pod CIDRs of Nodes (nodeIPAM)", "", ("nodes",), ("patch",)),)
