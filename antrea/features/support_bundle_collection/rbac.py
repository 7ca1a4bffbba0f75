"""Rights at kube-apiserver for SupportBundleCollections."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, READ, Rule

AGENT_RULES = (
    Rule(
        "support bundles that are collected from this Node",
        "controlplane.antrea.io",
        ("supportbundlecollections",),
        ("watch",),
    ),
    Rule("", "controlplane.antrea.io", ("supportbundlecollections/status",), ("create",)),
)
CONTROLLER_RULES = (
    Rule(
        "bundles of Nodes; the Secrets that they name are for users to grant (docs/support-bundle-collection.md)",
        CRD,
        ("supportbundlecollections",),
        READ,
    ),
    Rule("", CRD, ("supportbundlecollections/status",), ("patch",)),
)
