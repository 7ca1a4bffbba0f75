"""Rights at kube-apiserver for the annotation of Pods that have ports of their Node."""

from __future__ import annotations

from antrea.features.framework.rbac import Rule

AGENT_RULES = (
    Rule(
        "the annotation nodeportlocal.antrea.io of Pods that have ports of their Node",
        "",
        ("pods/status",),
        ("patch",),
    ),
)
