"""Metrics of sessions with routers and of what is advertised to them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from antrea.features.bgp_policy.advertisement import AdvertisedPrefix
from antrea.features.bgp_policy.policy import EffectivePolicy
from antrea.features.bgp_policy.route_type import TYPES
from antrea.features.bgp_policy.state import ESTABLISHED, BfdPeerState, BgpPeerState, FrrState
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from antrea.engine import Facts

ENGINE_UP = Metric(
    "antrea_agent_bgp_engine_up", "gauge", "ALPHA",
    "Whether FRR runs with the wanted configuration: 0 or 1.",
)  # fmt: skip
SESSION_UP = Metric(
    "antrea_agent_bgp_session_up", "gauge", "ALPHA",
    "Whether the BGP session with a router is established: 0 or 1.",
)  # fmt: skip
SENT = Metric(
    "antrea_agent_bgp_sent_route_count", "gauge", "ALPHA", "Number of networks that a router was sent."
)
BFD_UP = Metric(
    "antrea_agent_bfd_session_up", "gauge", "ALPHA",
    "Whether a router and this Node see each other by BFD: 0 or 1.",
)  # fmt: skip
ROUTES = Metric(
    "antrea_agent_bgp_advertised_route_count", "gauge", "ALPHA",
    "Number of networks that this Node advertises, by what they are for.",
)  # fmt: skip


def bgp_metrics(facts: Facts) -> str:
    """Render the metrics; none without a BGPPolicy. A drained Node has no series of BFD: it reports its state itself."""
    effective, state = facts.get(EffectivePolicy), facts.get(FrrState)
    if effective is None or state is None:
        return ""
    sessions = sorted(facts.all(BgpPeerState), key=lambda row: row.address)
    watched = [] if effective.is_draining else sorted(facts.all(BfdPeerState), key=lambda row: row.address)
    kinds = Counter(row.type for row in facts.all(AdvertisedPrefix))
    samples = (
        (ENGINE_UP, [Sample(not (state.why_not or state.refused))]),
        (SESSION_UP, [Sample(row.state == ESTABLISHED, {"peer": row.address}) for row in sessions]),
        (SENT, [Sample(row.advertised, {"peer": row.address}) for row in sessions]),
        (BFD_UP, [Sample(row.up, {"peer": row.address}) for row in watched]),
        (ROUTES, [Sample(kinds[kind], {"type": kind}) for kind in TYPES]),
    )
    return "".join(metric.text(rows) for metric, rows in samples if rows)
