"""Connections of a rule with application protocols that is gone: their next packets are first ones, which policies judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.openflow.fields import L7_NP_REDIRECT_CT_MARK, L7_NP_RULE_VLAN_ID_CT_LABEL, Zone

if TYPE_CHECKING:
    from antrea.outside.vswitch.conntrack import Conntrack

ZONES = (Zone.CT_ZONE, Zone.CT_ZONE_V6)


async def forget_connections(conntrack: Conntrack, vlan: int) -> None:
    """End those that have this VLAN. Raises Unavailable."""
    mark, field = L7_NP_REDIRECT_CT_MARK, L7_NP_RULE_VLAN_ID_CT_LABEL
    for zone in ZONES:
        found = [
            one
            for one in await conntrack.connections(zone.value)
            if one.mark & mark.field.mask and (one.label & field.mask) >> field.lo == vlan
        ]
        if found:
            await conntrack.forget(found)
