"""`antctl get beacons`."""

from __future__ import annotations

from antrea.features.framework.command import DataCommand, field

COMMANDS = (
    DataCommand(
        "get",
        "beacons",
        "A",
        "Print Beacons of this Node",
        "/beacons",
        ("bcn",),
        columns=(("NAME", field("name")), ("IP", field("ip"))),
    ),
)
