"""Settings of an export of flow records: of the configuration, and of a FlowExporterDestination.

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
"""Seconds after which a connection that cannot be exported is dropped."""


NAMESPACE: Final = "flow-aggregator"


class Trust(NamedTuple):
    """Mutual authentication of collector and agent by TLS."""

    authority: str = f"{NAMESPACE}/flow-aggregator-ca"
    """namespace/name of the ConfigMap with the authority of the collector's certificate, as ca.crt."""
    identity: str = f"{NAMESPACE}/flow-aggregator-client-tls"
    """Namespace/name of the Secret with the certificate of agents, as tls.crt and tls.key; empty for none."""
    server_name: str = f"flow-aggregator.{NAMESPACE}.svc"
    """Name in the collector's certificate."""
    tls13: bool = False
    """Whether TLS 1.2 is refused."""


class ExportSettings(NamedTuple):
    """Settings of one destination; times in seconds."""

    collector: Collector
    poll: float
    active: float
    idle: float
    stale: float
    protocols: frozenset[int]
    """Numbers of the exported protocols; empty for all."""
    trust: Trust = Trust()
    """Authentication, used with TLS."""


def settings(config: AgentConfig) -> ExportSettings:
    """Return the settings of the one collector in the configuration."""
    exporter = config.flow_exporter
    active = seconds(config.active_flow_export_timeout or exporter.active_flow_export_timeout)
    idle = seconds(config.idle_flow_export_timeout or exporter.idle_flow_export_timeout)
    return _settings(collector_of(config), poll_seconds(config), active, idle, exporter.protocol_filter or ())


def poll_seconds(config: AgentConfig) -> float:
    """Return the seconds between two polls of all connections."""
    return seconds(config.flow_poll_interval or config.flow_exporter.flow_poll_interval)


def destination_settings(requested: FlowDestination, poll: float) -> ExportSettings:
    """Return the settings of a FlowExporterDestination. Raises Invalid naming the field that must change."""
    if requested.protocol in ("tls", "grpc") and not requested.authority:
        with_this = "transport tls" if requested.protocol == "tls" else "protocol grpc"
        raise Invalid(
            "spec.tlsConfig", f"is required with {with_this}; name a ConfigMap with the collector's ca.crt"
        )
    try:
        to = collector(f"{requested.address}:{requested.protocol}")
    except ValueError as error:
        raise Invalid(
            "spec.address", f"{requested.address!r} is not host:port or namespace/service:port"
        ) from error
    namespace, mark, name = to.host.partition("/")
    host = f"{name}.{namespace}.svc" if mark else to.host
    trust = Trust(requested.authority, requested.identity, requested.server_name or host, requested.tls13)
    return _settings(to, poll, requested.active, requested.idle, requested.protocols)._replace(trust=trust)


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
