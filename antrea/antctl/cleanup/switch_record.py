"""Bridges and interfaces in the database of a stopped Open vSwitch, read from its file.

Source: ovsdb-tool(1), query; RFC 7047, 5.1
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.decoding import guarded
from antrea.host.ovs_port import CONTAINER, TYPE_KEY
from antrea.host.physical_bridge import PHYSICAL_BRIDGE, HeldCard
from antrea.outside.netlink.iproute2 import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_QUERY: Final = json.dumps(
    [
        "Open_vSwitch",
        {"op": "select", "table": "Bridge", "where": [], "columns": ["name", "external_ids"]},
        {"op": "select", "table": "Port", "where": [], "columns": ["name", "external_ids"]},
        {"op": "select", "table": "Interface", "where": [], "columns": ["name", "type"]},
    ]
)
GATEWAY: Final = "antrea-gw0"
"""Name of the gateway unless hostGateway is another one."""


class SwitchRecord(NamedTuple):
    """Bridges and interfaces of Antrea on this Node."""

    card: HeldCard | None = None
    """The transport interface that br-phy holds; None on the kernel datapath."""
    gateway: str = GATEWAY
    internal: tuple[str, ...] = ()
    """Interfaces that the switch created."""
    pods: tuple[str, ...] = ()
    """Interfaces of Pods."""


def read_record(database: Path) -> SwitchRecord:
    """Read the database; an empty record if there is no file.

    Raises OSError and SubprocessError if ovsdb-tool cannot read it, Invalid for unexpected contents.
    """
    if not database.exists():
        return SwitchRecord()
    text = run("ovsdb-tool", "query", str(database), _QUERY)
    return guarded(str(database), _record_of, text)


def _record_of(text: str) -> SwitchRecord:
    """Raises what a decoder raises."""
    bridges, ports, interfaces = ([_row(row) for row in result["rows"]] for result in json.loads(text))
    held = (HeldCard.of(row["external_ids"]) for row in bridges if row["name"] == PHYSICAL_BRIDGE)
    kinds = {row["name"]: row["external_ids"].get(TYPE_KEY, "") for row in ports}
    return SwitchRecord(
        card=next(held, None),
        gateway=next((name for name, kind in kinds.items() if kind == "gateway"), GATEWAY),
        internal=tuple(sorted(row["name"] for row in interfaces if row["type"] == "internal")),
        pods=tuple(sorted(name for name, kind in kinds.items() if kind == CONTAINER)),
    )


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with maps as dicts, and atoms as they are."""
    return {
        name: dict(wire[1]) if isinstance(wire, list) and wire[0] == "map" else wire
        for name, wire in row.items()
    }
