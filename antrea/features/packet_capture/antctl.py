"""`antctl packetcapture`."""

from __future__ import annotations

from antrea.features.framework.command import Action

ACTIONS = (
    Action(
        "",
        "packetcapture",
        "ACR",
        "Capture packets of a Pod",
        "antrea.features.packet_capture.antctl_part.command",
        ("pc", "packetcaptures"),
    ),
)
