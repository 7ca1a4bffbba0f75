"""ClusterNetworkPolicy and NetworkPolicy of crd.antrea.io/v1beta1.

Both kinds, all directions share one Rule; what a place does not have is taken out of its schema there.
Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/{clusternetworkpolicy,networkpolicy}.yaml
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from antrea.apis.crd.part import (
    Address,
    Byte,
    Condition,
    CrdStruct,
    IPBlock,
    LabelSelector,
    Metadata,
    NamespacedName,
    selector,
)
from antrea.apis.schema import Schema, doc, one_of

RuleAction: TypeAlias = Literal["Allow", "Drop", "Reject", "Pass"]
Scope: TypeAlias = Literal["Cluster", "ClusterSet"]
LOG_LABEL = "^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$"
IGMP_QUERY = 0x11
IGMP_REPORTS = (0x12, 0x16, 0x22)
"""Version 1, 2 and 3."""


class AppliedTo(CrdStruct, frozen=True):
    """To what a policy or a rule applies."""

    pod_selector: Annotated[LabelSelector | None, selector("Pods")] = None
    namespace_selector: Annotated[LabelSelector | None, selector("Namespaces of those Pods")] = None
    external_entity_selector: Annotated[LabelSelector | None, selector("ExternalEntities")] = None
    group: Annotated[str, doc("Name of a Group or ClusterGroup; alone if given.")] = ""
    service_account: Annotated[
        NamespacedName | None, doc("ServiceAccount that Pods run as; alone if given.")
    ] = None
    service: Annotated[
        NamespacedName | None, doc("Service whose NodePorts the policy is for; alone if given.")
    ] = None
    node_selector: Annotated[LabelSelector | None, selector("Nodes")] = None


class PeerNamespaces(CrdStruct, frozen=True):
    """Namespaces in relation to the Namespace of the Pod that the policy applies to."""

    schema_keywords: ClassVar[Schema] = {"minProperties": 1, "maxProperties": 1}

    match: Annotated[Literal["Self"] | None, doc("Self: the same Namespace.")] = None
    same_labels: Annotated[tuple[str, ...], doc("Namespaces that have the same values of these labels.")] = ()


class Peer(CrdStruct, frozen=True):
    """The other side of a rule's traffic."""

    pod_selector: Annotated[LabelSelector | None, selector("Pods")] = None
    namespace_selector: Annotated[LabelSelector | None, selector("Namespaces of those Pods")] = None
    namespaces: Annotated[PeerNamespaces | None, doc("Instead of `namespaceSelector`: by relation.")] = None
    external_entity_selector: Annotated[LabelSelector | None, selector("ExternalEntities")] = None
    ip_block: Annotated[IPBlock | None, doc("Addresses.")] = None
    group: Annotated[str, doc("Name of a Group or ClusterGroup; alone if given.")] = ""
    fqdn: Annotated[str, doc("DNS name, * standing for any part of it.")] = ""
    service_account: Annotated[
        NamespacedName | None, doc("ServiceAccount that Pods run as; alone if given.")
    ] = None
    node_selector: Annotated[LabelSelector | None, selector("Nodes")] = None
    scope: Annotated[Scope | None, doc("Cluster if not given; ClusterSet: Pods of all its clusters.")] = None


class RulePort(CrdStruct, frozen=True):
    """Ports of one protocol."""

    protocol: Annotated[Literal["TCP", "UDP", "SCTP"] | None, doc("TCP if not given.")] = None
    port: Annotated[
        int | str | None, doc("Destination port, or name of a port of Pods; all if not given.")
    ] = None
    end_port: Annotated[int | None, doc("Last port of a range that starts with `port`.")] = None
    source_port: Annotated[int | None, doc("Source port.")] = None
    source_end_port: Annotated[int | None, doc("Last port of a range that starts with `sourcePort`.")] = None


class IcmpProtocol(CrdStruct, frozen=True):
    """ICMP messages."""

    icmp_type: Annotated[Byte | None, doc("All if not given.")] = None
    icmp_code: Annotated[Byte | None, doc("All if not given.")] = None


class IgmpProtocol(CrdStruct, frozen=True):
    """IGMP messages."""

    igmp_type: Annotated[int | None, doc("17: queries; 18, 22, 34: reports of version 1, 2, 3.")] = None
    group_address: Annotated[Address, doc("Multicast group; all if not given.")] = ""


class Protocol(CrdStruct, frozen=True):
    """A protocol without ports."""

    schema_keywords: ClassVar[Schema] = one_of("icmp", "igmp")

    icmp: IcmpProtocol | None = None
    igmp: IgmpProtocol | None = None


class HttpProtocol(CrdStruct, frozen=True):
    """HTTP requests; what is not given may be anything."""

    host: Annotated[str, doc("Host that is asked, * at its ends standing for anything.")] = ""
    method: Annotated[
        Literal["GET", "POST", "PUT", "HEAD", "DELETE", "TRACE", "OPTIONS", "CONNECT", "PATCH"] | None,
        doc("Method of the request."),
    ] = None
    path: Annotated[str, doc("Path of the request, * at its ends standing for anything.")] = ""


class TlsProtocol(CrdStruct, frozen=True):
    """TLS handshakes."""

    sni: Annotated[str, doc("Server name that the client asks for.")] = ""


class L7Protocol(CrdStruct, frozen=True):
    """An application protocol."""

    schema_keywords: ClassVar[Schema] = one_of("http", "tls")

    http: HttpProtocol | None = None
    tls: TlsProtocol | None = None


class PeerService(CrdStruct, frozen=True):
    """A Service that traffic goes to."""

    name: Annotated[str, doc("Name of the Service.")]
    namespace: Annotated[str, doc("Namespace of the Service.")] = ""
    scope: Annotated[str, doc("Cluster if not given; ClusterSet: the Service of all its clusters.")] = ""


class Rule(CrdStruct, frozen=True):
    """Traffic of one direction and what becomes of it."""

    action: Annotated[RuleAction, doc("What becomes of the traffic; Pass leaves it to later policies.")]
    applied_to: Annotated[
        tuple[AppliedTo, ...], doc("To what this rule applies; instead of the policy's own.")
    ] = ()
    ports: Annotated[tuple[RulePort, ...], doc("Any of these ports; all if empty.")] = ()
    protocols: Annotated[tuple[Protocol, ...], doc("Any of these protocols without ports.")] = ()
    l7_protocols: Annotated[
        tuple[L7Protocol, ...], doc("Application protocols that are allowed; all others are dropped.")
    ] = ()
    from_: Annotated[tuple[Peer, ...], doc("Where the traffic comes from; anywhere if empty.")] = ()
    to: Annotated[tuple[Peer, ...], doc("Where the traffic goes; anywhere if empty.")] = ()
    to_services: Annotated[tuple[PeerService, ...], doc("Services that the traffic goes to.")] = ()
    name: Annotated[str, doc("Unique in the policy; made up if empty.")] = ""
    enable_logging: Annotated[bool, doc("Whether connections are logged on their Node.")] = False
    log_label: Annotated[str, doc("Text in the lines of that log.", pattern=LOG_LABEL)] = ""


class PolicyStatus(CrdStruct, frozen=True):
    """How far Nodes are with the policy."""

    phase: Annotated[str, doc("Pending, Realizing, Realized or Failed.")] = ""
    observed_generation: Annotated[int, doc("Generation that the status speaks of.")] = 0
    current_nodes_realized: Annotated[int, doc("Nodes that have realized the policy.")] = 0
    desired_nodes_realized: Annotated[int, doc("Nodes that should realize the policy.")] = 0
    realized_generation: Annotated[
        int, doc("The last generation that all Nodes have realized which should at that time.")
    ] = 0
    conditions: Annotated[tuple[Condition, ...], doc("Realizable, RealizationFailure.")] = ()


TierName: TypeAlias = Annotated[str, doc("Name of the policy's Tier; application if empty.")]
Priority: TypeAlias = Annotated[
    float,
    doc(
        "Place among the policies of the Tier; the lowest goes first.",
        format="float",
        minimum=1.0,
        maximum=10000.0,
    ),
]
ENTITY, NAMESPACE, NODE, ACCOUNT, SERVICE = (
    "externalEntitySelector",
    "namespaceSelector",
    "nodeSelector",
    "serviceAccount",
    "service",
)
NOT_INGRESS = ("to", "toServices", "from.fqdn")
NOT_EGRESS = ("from", "to.scope")
NOT_CLUSTER = (f"appliedTo.{ENTITY}", f"appliedTo.{NODE}")
NOT_NAMESPACED = tuple(f"appliedTo.{name}" for name in (ENTITY, NAMESPACE, NODE, ACCOUNT, SERVICE))
IGMP_TYPE = "protocols.igmp.igmpType"


class ClusterNetworkPolicySpec(CrdStruct, frozen=True):
    """Rules for Pods, Services and Nodes of the whole cluster."""

    priority: Priority
    tier: TierName = ""
    applied_to: Annotated[
        tuple[AppliedTo, ...], doc("To what the policy applies, unless its rules say so.", without=(ENTITY,))
    ] = ()
    ingress: Annotated[
        tuple[Rule, ...],
        doc(
            "Rules for traffic to them.",
            without=(*NOT_INGRESS, *NOT_CLUSTER, f"from.{ENTITY}"),
            at={IGMP_TYPE: {"enum": [IGMP_QUERY]}},
        ),
    ] = ()
    egress: Annotated[
        tuple[Rule, ...],
        doc(
            "Rules for traffic from them.",
            without=(*NOT_EGRESS, *NOT_CLUSTER, f"appliedTo.{SERVICE}", f"to.{ENTITY}"),
            at={
                IGMP_TYPE: {"enum": [*IGMP_REPORTS]},
                "toServices[]": {"required": ["name", "namespace"]},
                "toServices.scope": {"enum": ["Cluster", "ClusterSet"]},
            },
        ),
    ] = ()


class NetworkPolicySpec(CrdStruct, frozen=True):
    """Rules for Pods and ExternalEntities of one Namespace."""

    priority: Priority
    tier: TierName = ""
    applied_to: Annotated[
        tuple[AppliedTo, ...],
        doc(
            "To what the policy applies, unless its rules say so.",
            without=(NAMESPACE, NODE, ACCOUNT, SERVICE),
        ),
    ] = ()
    ingress: Annotated[
        tuple[Rule, ...],
        doc(
            "Rules for traffic to them.",
            without=(*NOT_INGRESS, *NOT_NAMESPACED, "from.namespaces", f"from.{ACCOUNT}"),
            at={IGMP_TYPE: {"enum": [IGMP_QUERY]}},
        ),
    ] = ()
    egress: Annotated[
        tuple[Rule, ...],
        doc(
            "Rules for traffic from them.",
            without=(*NOT_EGRESS, *NOT_NAMESPACED, "to.namespaces", f"to.{ACCOUNT}"),
            at={IGMP_TYPE: {"enum": [*IGMP_REPORTS]}},
        ),
    ] = ()


class ClusterNetworkPolicy(CrdStruct, frozen=True):
    """A policy of the cluster's administrators."""

    metadata: Metadata = Metadata()
    spec: ClusterNetworkPolicySpec = ClusterNetworkPolicySpec(priority=0)
    """Objects without it are accepted, as upstream does; they have priority 0."""
    status: PolicyStatus = PolicyStatus()


class NetworkPolicy(CrdStruct, frozen=True):
    """A policy of one Namespace, with tiers and priorities."""

    metadata: Metadata = Metadata()
    spec: NetworkPolicySpec = NetworkPolicySpec(priority=0)
    """Objects without it are accepted, as upstream does; they have priority 0."""
    status: PolicyStatus = PolicyStatus()
