"""`antctl traceflow`."""

from __future__ import annotations

from antrea.features.framework.command import Action

ACTIONS = (
    Action(
        "",
        "traceflow",
        "ACR",
        "Trace a packet through the cluster",
        "antrea.features.traceflow.antctl_part.command",
        ("tf", "traceflows"),
    ),
)
