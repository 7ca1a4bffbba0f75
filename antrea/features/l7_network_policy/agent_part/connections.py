"""Connections of a deleted rule with application protocols: their next packets are first ones, which policies judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.openflow.fields import (
    L7_NP_EGRESS_VLAN_ID_CT_LABEL,
    L7_NP_REDIRECT_CT_MARK,
    L7_NP_RULE_VLAN_ID_CT_LABEL,
    Zone,
)

if TYPE_CHECKING:
    from antrea.outside.vswitch.conntrack import Conntrack, Tracked

ZONES = (Zone.CT_ZONE, Zone.CT_ZONE_V6)
VLANS = (L7_NP_RULE_VLAN_ID_CT_LABEL, L7_NP_EGRESS_VLAN_ID_CT_LABEL)


async def forget_connections(conntrack: Conntrack, vlan: int) -> None:
    """Remove connections with this VLAN. Raises Unavailable."""
    for zone in ZONES:
        connections = [
            connection for connection in await conntrack.connections(zone.value) if _has(connection, vlan)
        ]
        if connections:
            await conntrack.forget(connections)


async def has_connections(conntrack: Conntrack, vlan: int) -> bool:
    """Whether any connection has this VLAN. Raises Unavailable."""
    for zone in ZONES:
        if any(_has(connection, vlan) for connection in await conntrack.connections(zone.value)):
            return True
    return False


def _has(connection: Tracked, vlan: int) -> bool:
    if not connection.mark & L7_NP_REDIRECT_CT_MARK.field.mask:
        return False
    return any((connection.label & field.mask) >> field.lo == vlan for field in VLANS)
