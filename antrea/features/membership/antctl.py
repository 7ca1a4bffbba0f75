"""`antctl get memberlist`."""

from __future__ import annotations

from antrea.features.framework.command import DataCommand, field

COMMANDS = (
    DataCommand(
        "get",
        "memberlist",
        "A",
        "Print state of memberlist cluster",
        "/memberlist",
        ("ml",),
        "Print which Nodes' agents are alive, as gossip between them finds it.",
        "  antctl get memberlist",
        columns=(("NODE", field("nodeName")), ("IP", field("ip")), ("STATUS", field("status"))),
    ),
)
