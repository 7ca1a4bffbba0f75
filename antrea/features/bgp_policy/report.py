"""Findings on sessions of this Node, for its AntreaAgentInfo: what is not usable, down or in conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.node import ThisNode
from antrea.features.bgp_policy.imported import RefusedRoute
from antrea.features.bgp_policy.policy import EffectivePolicy
from antrea.features.bgp_policy.router_id import NodeRouterId, router_id
from antrea.features.bgp_policy.session import IgnoredSetting, UnusablePeer
from antrea.features.bgp_policy.state import ESTABLISHED, BfdPeerState, BgpPeerState

if TYPE_CHECKING:
    from antrea.engine import Facts

MAX_NAMED = 5
"""Settings that a message names."""


def unusable_peers(facts: Facts) -> str:
    """Name the peers of the policy that this Node has no session with."""
    rows = sorted(facts.all(UnusablePeer), key=lambda row: row.peer)
    return "; ".join(f"peer {row.peer}: {row.why}" for row in rows)


def settings_without_effect(facts: Facts) -> str:
    """Name settings that have no effect, and routes of routers that are not installed."""
    rows = sorted(facts.all(IgnoredSetting), key=lambda row: row.key)
    routes = sorted(facts.all(RefusedRoute), key=lambda row: row.network)
    texts = [*(f"peer {row.peer}: {row.why}" for row in rows), *(f"route {row.why}" for row in routes)]
    more = f"; {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return f"{'; '.join(texts[:MAX_NAMED])}{more}"


def bgp_peers_down(facts: Facts) -> str:
    """Name the sessions that are not established, with the last error."""
    rows = sorted(facts.all(BgpPeerState), key=lambda row: row.address)
    return "; ".join(
        f"BGP session with {row.address} is {row.state}" + (f" ({row.error})" if row.error else "")
        for row in rows
        if row.state != ESTABLISHED
    )


def bfd_peers_down(facts: Facts) -> str:
    """Name the routers that do not see this Node by BFD; none while the Node is drained, and reports that itself."""
    effective = facts.get(EffectivePolicy)
    if effective is None or effective.is_draining:
        return ""
    rows = sorted(facts.all(BfdPeerState), key=lambda row: row.address)
    return "; ".join(
        f"BFD session with {row.address} is down" + (f" ({row.diagnostic})" if row.diagnostic else "")
        for row in rows
        if not row.up
    )


def duplicate_router_id(facts: Facts) -> str:
    """Name the other Nodes with the identifier of this one: routers refuse one of two such speakers, or mix up their routes."""
    node = facts.get(ThisNode)
    if node is None or facts.get(EffectivePolicy) is None:
        return ""
    identifier = router_id(facts, node)
    others = sorted(
        row.node for row in facts.by(NodeRouterId, "router_id", identifier) if row.node != node.name
    )
    if not others:
        return ""
    return f"{identifier}, the BGP router ID of this Node, is also that of {', '.join(others)}"
