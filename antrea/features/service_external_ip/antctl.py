"""`antctl get serviceexternalip`."""

from __future__ import annotations

from antrea.features.framework.command import DataCommand, Flag, field

COMMANDS = (
    DataCommand(
        "get",
        "serviceexternalip",
        "A",
        "Print external IPs of Services",
        "/serviceexternalip",
        ("serviceexternalips", "seip"),
        "Print the external IPs of Services of type LoadBalancer that come from pools, and the Node that answers for each.",
        "  antctl get serviceexternalip\n  antctl get serviceexternalip web -n shop",
        "name",
        (Flag("namespace", "n", "only of this Namespace"),),
        columns=(
            ("NAMESPACE", field("namespace")),
            ("NAME", field("serviceName")),
            ("EXTERNAL-IP-POOL", field("externalIPPool")),
            ("EXTERNAL-IP", field("externalIP")),
            ("ASSIGNED-NODE", field("assignedNode")),
        ),
    ),
)
