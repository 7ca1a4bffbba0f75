"""FlowExporterDestination of crd.antrea.io/v1alpha1.

Source: upstream pkg/apis/crd/v1alpha1/types.go, build/charts/antrea/crds/flowexporterdestination.yaml
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from antrea.apis.crd.part import CrdStruct, Metadata
from antrea.apis.schema import Schema, doc, one_of

Name: TypeAlias = Annotated[str, doc(minLength=1)]


class IpfixProtocol(CrdStruct, frozen=True):
    """IPFIX."""

    transport: Annotated[Literal["tcp", "udp", "tls"], doc("What carries it.")]


class GrpcProtocol(CrdStruct, frozen=True):
    """gRPC."""


class FlowProtocol(CrdStruct, frozen=True):
    """How records are sent; exactly one of these."""

    schema_keywords: ClassVar[Schema] = one_of("ipfix", "grpc")

    ipfix: IpfixProtocol | None = None
    grpc: GrpcProtocol | None = None


class FlowFilter(CrdStruct, frozen=True):
    """Connections that are exported."""

    protocols: Annotated[
        tuple[Literal["tcp", "udp", "sctp"], ...], doc("Any of these; all if not given.")
    ] = ()


class ConfigMapReference(CrdStruct, frozen=True):
    """A ConfigMap by name."""

    namespace: Annotated[Name, doc("Namespace of the ConfigMap.")]
    name: Annotated[Name, doc("Name of the ConfigMap.")]


class TlsSecretReference(CrdStruct, frozen=True):
    """A Secret by name."""

    namespace: Annotated[Name, doc("Namespace of the Secret.")]
    name: Annotated[Name, doc("Name of the Secret.")]


class TlsConfig(CrdStruct, frozen=True):
    """How the collector is verified."""

    ca_config_map: Annotated[ConfigMapReference, doc("Its certificate authority, under the key ca.crt.")]
    min_tls_version: Annotated[
        Literal["VersionTLS12", "VersionTLS13"], doc("Oldest version of TLS.", default="VersionTLS12")
    ] = "VersionTLS12"
    server_name: Annotated[Name, doc("Name in its certificate; that of `address` if not given.")] = ""
    client_secret: Annotated[
        TlsSecretReference | None, doc("Our own certificate, under the keys tls.crt and tls.key.")
    ] = None


class FlowExporterDestinationSpec(CrdStruct, frozen=True):
    """Where flow records go."""

    address: Annotated[
        str, doc("The collector, as host:port or namespace/service:port.", pattern="^.+:[0-9]+$")
    ]
    protocol: FlowProtocol
    filter: FlowFilter | None = None
    active_flow_export_timeout_seconds: Annotated[
        int,
        doc("Seconds between two records of a busy connection.", format="int32", minimum=1, default=5),
    ] = 5
    idle_flow_export_timeout_seconds: Annotated[
        int,
        doc("Seconds without a packet until an idle one is sent.", format="int32", minimum=1, default=15),
    ] = 15
    tls_config: TlsConfig | None = None


class FlowExporterDestination(CrdStruct, frozen=True):
    """A collector of flow records."""

    spec: FlowExporterDestinationSpec
    metadata: Metadata = Metadata()
