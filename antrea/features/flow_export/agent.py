"""Rows and entries of the export of flow records: FlowExporterDestinations.

The flows that send denied packets are those of policies; the rest is work of the part in `agent_part`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from antrea.apis.crd.flow_export import FlowExporterDestination
from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.flow_destination import FlowDestination
from antrea.facts.node import ThisNode
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.proxy.service import SERVICE_WATCH
from antrea.host.sysctl import Sysctl
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GATE = "FlowExporter"
PATH = "/apis/crd.antrea.io/v1alpha1/flowexporterdestinations"
KERNEL_COUNTS: Final = ("net/netfilter/nf_conntrack_acct", "net/netfilter/nf_conntrack_timestamp")
"""Without these, which are off in stock kernels, the kernel's connection tracking has no counters and no times of new connections.

parity: pkg/agent/flowexporter/connections/conntrack_linux.go SetupConntrackParameters
"""


class FlowExport(msgspec.Struct, frozen=True):
    """Entry: records go to this destination while it is wanted."""

    destination: FlowDestination

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self.destination.name


def flow_destination(stored: FlowExporterDestination) -> FlowDestination:
    """Make the row of an object."""
    spec, tls = stored.spec, stored.spec.tls_config
    return FlowDestination(
        stored.metadata.name,
        stored.metadata.uid,
        spec.address,
        spec.protocol.ipfix.transport if spec.protocol.ipfix else "grpc",
        spec.filter.protocols if spec.filter else (),
        spec.active_flow_export_timeout_seconds,
        spec.idle_flow_export_timeout_seconds,
        f"{tls.ca_config_map.namespace}/{tls.ca_config_map.name}" if tls else "",
        f"{tls.client_secret.namespace}/{tls.client_secret.name}" if tls and tls.client_secret else "",
        tls.server_name if tls else "",
        tls is not None and tls.min_tls_version == "VersionTLS13",
    )


def flow_export(facts: Facts, destination: FlowDestination) -> Iterator[FlowExport | Sysctl]:
    """Yield the export of each destination, with the counters of its records."""
    yield FlowExport(destination)
    yield from _kernel_counts(facts.need(AgentConfig))


def counted_connections(facts: Facts, _: ThisNode) -> Iterator[Sysctl]:
    """Yield the counters of records for the collector of the configuration."""
    config = facts.need(AgentConfig)
    if config.flow_exporter.enable:
        yield from _kernel_counts(config)


def _kernel_counts(config: AgentConfig) -> Iterator[Sysctl]:
    """Yield settings of the kernel datapath; the other one has connections of its own."""
    if config.ovs_datapath_type == "system":
        for path in KERNEL_COUNTS:
            yield Sysctl(path, "1")


FEATURES = (
    AgentFeature(
        name="FlowExporter",
        gate=GATE,
        watched=(
            SERVICE_WATCH,
            Watched(PATH, FlowExporterDestination, FlowDestination, flow_destination, optional=True),
        ),
        units=(Unit(FlowDestination, flow_export), Unit(ThisNode, counted_connections)),
    ),
)
