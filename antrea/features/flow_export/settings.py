"""The settings of an export of records: of the configuration, and of a FlowExporterDestination.

parity: cmd/antrea-agent/options.go (defaults, timeouts that are raised)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.config.shape import Collector, collector, seconds
from antrea.errors import Invalid
from antrea.features.framework.flow_collector import collector_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.config.agent import AgentConfig
    from antrea.facts.flow_destination import FlowDestination

FILTERED: Final = {"tcp": (6,), "udp": (17,), "sctp": (132,)}
STALE: Final = 300.0
"""Seconds after which a connection that cannot be exported is forgotten."""


NAMESPACE: Final = "flow-aggregator"


class Trust(NamedTuple):
    """How the collector and the agent know each other over TLS."""

    authority: str = f"{NAMESPACE}/flow-aggregator-ca"
    """namespace/name of the ConfigMap with the authority of the collector's certificate, as ca.crt."""
    identity: str = f"{NAMESPACE}/flow-aggregator-client-tls"
    """namespace/name of the Secret with the certificate of agents, as tls.crt and tls.key; empty: without one."""
    server_name: str = f"flow-aggregator.{NAMESPACE}.svc"
    """That of the collector's certificate."""
    tls13: bool = False
    """Whether TLS 1.2 is refused."""


class ExportSettings(NamedTuple):
    """Of one destination; times in seconds."""

    collector: Collector
    poll: float
    active: float
    idle: float
    stale: float
    protocols: frozenset[int]
    """Numbers of those that are exported; empty: all."""
    trust: Trust = Trust()
    """Used with TLS."""


def settings(config: AgentConfig) -> ExportSettings:
    """Of the one collector that the configuration names."""
    own = config.flow_exporter
    active = seconds(config.active_flow_export_timeout or own.active_flow_export_timeout)
    idle = seconds(config.idle_flow_export_timeout or own.idle_flow_export_timeout)
    return _settings(collector_of(config), poll_seconds(config), active, idle, own.protocol_filter or ())


def poll_seconds(config: AgentConfig) -> float:
    """Between two looks at all connections."""
    return seconds(config.flow_poll_interval or config.flow_exporter.flow_poll_interval)


def destination_settings(asked: FlowDestination, poll: float) -> ExportSettings:
    """Of a FlowExporterDestination. Raises Invalid naming the field that must change."""
    if asked.protocol in ("tls", "grpc") and not asked.authority:
        with_this = "transport tls" if asked.protocol == "tls" else "protocol grpc"
        raise Invalid(
            "spec.tlsConfig", f"is required with {with_this}; name a ConfigMap with the collector's ca.crt"
        )
    try:
        to = collector(f"{asked.address}:{asked.protocol}")
    except ValueError as error:
        raise Invalid(
            "spec.address", f"{asked.address!r} is not host:port or namespace/service:port"
        ) from error
    namespace, mark, name = to.host.partition("/")
    host = f"{name}.{namespace}.svc" if mark else to.host
    trust = Trust(asked.authority, asked.identity, asked.server_name or host, asked.tls13)
    return _settings(to, poll, asked.active, asked.idle, asked.protocols)._replace(trust=trust)


def _settings(
    to: Collector, poll: float, active: float, idle: float, protocols: Iterable[str]
) -> ExportSettings:
    longest = max(active, idle, poll)
    return ExportSettings(
        to,
        poll,
        max(active, poll),
        max(idle, poll),
        STALE if longest <= STALE else 2 * longest,
        frozenset(number for name in protocols for number in FILTERED.get(name.lower(), ())),
    )
