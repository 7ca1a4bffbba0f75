"""flow-aggregator.conf: the keys of upstream that have an effect here; others are named at start as unknown.

Source: upstream pkg/config/flowaggregator/config.go, build/charts/flow-aggregator/conf/flow-aggregator.conf.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from antrea.config.agent_sections import Section
from antrea.config.shape import Count, Duration, Port
from antrea.facts.fact import Fact

RuleAction = Literal["None", "Allow", "Drop", "Reject"]


class AggregatorApi(Section, frozen=True):
    """The keys under `apiServer`."""

    api_port: Port = 10348
    """Port of the aggregator's API, for antctl and kubelet's probes."""
    authorize_users: bool = False
    """Our own key: answer users whom kube-apiserver lets list flows of flow.antrea.io, beside the token of this Pod."""


class RecordContents(Section, frozen=True):
    """The keys under `recordContents`."""

    pod_labels: bool = False
    """With the labels of both Pods, in all destinations but the flow log."""
    pod_names: bool = False
    """Our own key: with the other end's Pod where one Node alone makes a record, such as of what it denied; follows all Pods."""
    requests: bool = False
    """Our own key: with requests of HTTP, TLS and DNS also in flowCollector, flowLogger and s3Uploader, where upstream v2.3.2 has them."""


class FlowCollectorTls(Section, frozen=True):
    """The keys under `flowCollector.tls`; the Secrets are those of the aggregator's Namespace."""

    enable: bool = False
    """Send records over TLS, which is for tcp alone."""
    ca_secret_name: str = ""
    """Secret with ca.crt, by which the collector is verified; empty: by the system's CAs."""
    server_name: str = ""
    """Name in the collector's certificate; empty: the host of `address`."""
    client_secret_name: str = ""
    """Secret with tls.crt and tls.key, the aggregator's certificate for the collector; empty: none."""
    min_version: Literal["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"] = ""
    """Least version of TLS; empty: 1.2."""


class FlowCollector(Section, frozen=True):
    """The keys under `flowCollector`."""

    enable: bool = False
    """Send joined records to an IPFIX collector."""
    address: str = ""
    """host:port[:tcp|udp] of the collector; port 4739 and tcp unless given."""
    observation_domain_id: Annotated[int, msgspec.Meta(ge=0, le=4294967295)] = msgspec.field(
        default=0, name="observationDomainID"
    )
    """Observation domain of the messages; 0: made of clusterID."""
    record_format: Literal["IPFIX", "JSON"] = "IPFIX"
    """How a record is written; JSON: an object a line, with the names of elements."""
    max_ipfix_msg_size: Annotated[int, msgspec.Meta(ge=0, le=65535)] = msgspec.field(
        default=0, name="maxIPFIXMsgSize"
    )
    """Most bytes of a message, 512 at least; 0: by the protocol."""
    template_refresh_timeout: Duration = "600s"
    """Between templates over UDP."""
    include_k8s_names: bool = msgspec.field(default=True, name="includeK8sNames")
    """With names of Pods, Nodes, Services, policies and Egresses."""
    include_k8s_uids: bool = msgspec.field(default=False, name="includeK8sUIDs")
    """With their UIDs, of 16 bytes each."""
    tls: FlowCollectorTls = FlowCollectorTls()
    """How the collector and the aggregator know each other."""


class GrpcCollector(Section, frozen=True):
    """The keys under `grpcCollector`, which are our own: upstream's always runs, at this port."""

    enable: bool = True
    """Take records by gRPC, with the same certificates as tls."""
    port: Port = 14739
    """Port at which they are taken."""


class FlowStreamService(Section, frozen=True):
    """The keys under `flowStreamService`."""

    enable: bool = False
    """Stream records by gRPC to clients that ask for them."""
    port: Port = 14740
    """Our own key: port of the streams."""
    anonymous: bool = False
    """Our own key: answer everybody who reaches the port, as upstream does, in place of those with a token."""


class LogFilter(Section, frozen=True):
    """Records that are written: those that both lists take; an empty one takes all."""

    ingress_network_policy_rule_actions: tuple[RuleAction, ...] = ()
    """Actions of the ingress rules that selected the connection."""
    egress_network_policy_rule_actions: tuple[RuleAction, ...] = ()
    """Actions of the egress rules that selected the connection."""


class FlowLogger(Section, frozen=True):
    """The keys under `flowLogger`."""

    enable: bool = False
    """Write joined records to a file."""
    path: str = "/tmp/antrea-flows.log"  # noqa: S108 (upstream's default)
    """The file."""
    max_size: Count = 100
    """Megabytes after which it is put aside."""
    max_backups: Count = 3
    """How many of those that were put aside are kept; 0: all."""
    max_age: Count = 0
    """Days that those that were put aside are kept; 0: for ever."""
    compress: bool = True
    """Compress those that were put aside."""
    record_format: Literal["CSV"] = "CSV"
    """How a record is written."""
    filters: tuple[LogFilter, ...] = ()
    """A record is written if one of these takes it; none: all records are."""
    pretty_print: bool = True
    """Write names of protocols, actions and policy types in place of numbers."""


class ClickHouseTls(Section, frozen=True):
    """The keys under `clickHouse.tls`."""

    insecure_skip_verify: bool = False
    """Do not verify the server's certificate."""
    ca_cert: bool = msgspec.field(default=False, name="caCert")
    """Verify it with ca.crt of Secret clickhouse-ca; false: with the system's CAs."""


class ClickHouse(Section, frozen=True):
    """The keys under `clickHouse`."""

    enable: bool = False
    """Write joined records into a ClickHouse server."""
    database: str = "default"
    """The database, which must exist; its table `flows` is made if it does not."""
    database_url: str = msgspec.field(
        default="http://clickhouse-clickhouse.flow-visibility.svc:8123", name="databaseURL"
    )
    """http or https URL of the server; tcp at port 9000 and tls at 9440 stand for http at 8123 and https at 8443."""
    tls: ClickHouseTls = ClickHouseTls()
    """With https."""
    commit_interval: Duration = "8s"
    """Between two inserts, unless half of the buffer is full before; at least 1s."""
    retention: Duration = "168h"
    """Our own key: records are removed this long after they were inserted, from a table that the aggregator made; 0: never."""


class FlowStore(Section, frozen=True):
    """The keys under `store`, which are our own."""

    enable: bool = False
    """Keep joined records in this Pod, in ClickHouse's engine, for queries; needs the image with that engine."""
    directory: str = "/var/lib/antrea/flows"
    """The folder, which no other process may use."""
    retention: Duration = "168h"
    """Records are removed this long after they were inserted; from 1h to 744h."""
    max_size: Annotated[int, msgspec.Meta(ge=256)] = 10_000
    """Megabytes, at least 256, of which the records of the oldest hours make room for new ones."""
    commit_interval: Duration = "2s"
    """Between two inserts, unless half of the buffer is full before; at least 1s."""


class S3Uploader(Section, frozen=True):
    """The keys under `s3Uploader`."""

    enable: bool = False
    """Write joined records into a bucket of an S3 server."""
    bucket_name: str = ""
    """The bucket, which must exist."""
    bucket_prefix: str = ""
    """Folder in it."""
    region: str = ""
    """Region of the bucket; empty: AWS_REGION of the environment, or us-west-2."""
    record_format: Literal["CSV"] = "CSV"
    """How a record is written."""
    compress: bool = True
    """Compress files with gzip."""
    max_records_per_file: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    """At most; there are never more than recordBufferSize."""
    upload_interval: Duration = "60s"
    """Between two files, unless half of the buffer is full before; at least 1s."""


class FlowAggregatorConfig(Fact, frozen=True, rename="camel"):
    """The keys of flow-aggregator.conf, with defaults filled in."""

    file: ClassVar[str] = "flow-aggregator.conf"
    renamed: ClassVar[dict[str, str]] = {}
    fixed: ClassVar[tuple[str, ...]] = ()

    mode: Literal["Aggregate", "Proxy"] = "Aggregate"
    """Join the records of both Nodes of a connection, or pass each on to flowCollector as it comes."""
    active_flow_record_timeout: Duration = "60s"
    """Time between two joined records of a connection that is still open; at least 1s."""
    inactive_flow_record_timeout: Duration = "90s"
    """A connection is forgotten this long after its last record; at least 1s."""
    aggregator_transport_protocol: Literal["tls", "tcp", "udp", "none"] = "tls"
    """Protocol by which agents send records as IPFIX; with tcp and udp anybody can who reaches the port; none: not as IPFIX."""
    flow_aggregator_address: str = ""
    """With tls: a name or an address, other than that of the Service, by which agents reach the aggregator."""
    collector_port: Port = 4739
    """Our own key: port at which records are taken as IPFIX."""
    grpc_collector: GrpcCollector = GrpcCollector()
    """Records of agents by gRPC."""
    api_server: AggregatorApi = AggregatorApi()
    """The aggregator's API."""
    record_contents: RecordContents = RecordContents()
    """Contents of records."""
    flow_collector: FlowCollector = FlowCollector()
    """Joined records to an IPFIX collector."""
    flow_logger: FlowLogger = FlowLogger()
    """Joined records to a file."""
    flow_stream_service: FlowStreamService = FlowStreamService()
    """Streams of records by gRPC."""
    click_house: ClickHouse = ClickHouse()
    """Joined records to ClickHouse."""
    store: FlowStore = FlowStore()
    """Our own key: joined records kept in this Pod, for queries."""
    s3_uploader: S3Uploader = msgspec.field(default=S3Uploader(), name="s3Uploader")
    """Joined records to S3."""
    record_buffer_size: Annotated[int, msgspec.Meta(ge=1, extra={"unset": (0,)})] = 8192
    """Records that wait for one destination; of more, the oldest are dropped and counted."""
    cluster_id: str = msgspec.field(default="", name="clusterID")
    """Name of this cluster in records; empty: the UUID of ConfigMap antrea-cluster-identity."""
