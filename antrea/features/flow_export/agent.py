"""Records of this Node's connections, as far as the agent's engine is concerned: what FlowExporterDestinations ask for.

The flows that send denied packets are those of policies; the rest is work of the part in antrea/agent/flow_export.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from antrea.apis.crd.flow_export import FlowExporterDestination
from antrea.engine import Unit
from antrea.facts.flow_destination import FlowDestination
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.proxy.service import SERVICE_WATCH
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GATE = "FlowExporter"
PATH = "/apis/crd.antrea.io/v1alpha1/flowexporterdestinations"


class FlowExport(msgspec.Struct, frozen=True):
    """An entry: records go to this destination while it stands."""

    destination: FlowDestination

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self.destination.name


def flow_destination(found: FlowExporterDestination) -> FlowDestination:
    """The row of an object."""
    spec, tls = found.spec, found.spec.tls_config
    return FlowDestination(
        found.metadata.name,
        found.metadata.uid,
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


def flow_export(_: Facts, destination: FlowDestination) -> Iterator[FlowExport]:
    """Of each destination."""
    yield FlowExport(destination)


FEATURES = (
    AgentFeature(
        name="FlowExporter",
        gate=GATE,
        watched=(
            SERVICE_WATCH,
            Watched(PATH, FlowExporterDestination, FlowDestination, flow_destination, optional=True),
        ),
        units=(Unit(FlowDestination, flow_export),),
    ),
)
