"""The configuration of the export of records.

parity: cmd/antrea-agent/options.go (defaults, timeouts that are raised)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.config.shape import Collector, seconds
from antrea.features.framework.flow_collector import collector_of

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig

FILTERED: Final = {"tcp": (6,), "udp": (17,), "sctp": (132,)}
STALE: Final = 300.0
"""Seconds after which a connection that cannot be exported is forgotten."""


class ExportSettings(NamedTuple):
    """Of one destination; times in seconds."""

    collector: Collector
    poll: float
    active: float
    idle: float
    stale: float
    protocols: frozenset[int]
    """Numbers of those that are exported; empty: all."""


def settings(config: AgentConfig) -> ExportSettings:
    """Of the one collector that the configuration names."""
    own = config.flow_exporter
    poll = seconds(config.flow_poll_interval or own.flow_poll_interval)
    active = max(seconds(config.active_flow_export_timeout or own.active_flow_export_timeout), poll)
    idle = max(seconds(config.idle_flow_export_timeout or own.idle_flow_export_timeout), poll)
    longest = max(active, idle)
    wanted = own.protocol_filter or ()
    return ExportSettings(
        collector_of(config),
        poll,
        active,
        idle,
        STALE if longest <= STALE else 2 * longest,
        frozenset(number for name in wanted for number in FILTERED.get(name.lower(), ())),
    )
