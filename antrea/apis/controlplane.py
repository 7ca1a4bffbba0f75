"""controlplane.antrea.io/v1beta2: what the controller computes for agents, and what they report to it.

Addresses are bytes: 16 of them, also for IPv4 (as ::ffff:a.b.c.d); on the wire they are base64.
Source: upstream pkg/apis/controlplane/v1beta2/types.go (field names and meaning).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from antrea.apis.meta import Int32, Int64, Number, ObjectMetadata, Wire
from antrea.apis.schema import doc

GROUP, VERSION = "controlplane.antrea.io", "v1beta2"
PROCESSED = f"{GROUP}/processed-pods"
"""Annotation of a watch's bookmarks, which upstream has not: all that a Node needs to know of its Pods, up to this resourceVersion, has been sent."""


class PodReference(Wire, frozen=True, kw_only=True):
    """A Pod by name."""

    name: Annotated[str, Meta(description="Name of the Pod.")] = ""
    namespace: Annotated[str, Meta(description="Namespace of the Pod.")] = ""


class NodeReference(Wire, frozen=True, kw_only=True):
    """A Node by name."""

    name: Annotated[str, Meta(description="Name of the Node.")] = ""


class ServiceReference(Wire, frozen=True, kw_only=True):
    """A Service by name."""

    name: Annotated[str, Meta(description="Name of the Service.")] = ""
    namespace: Annotated[str, Meta(description="Namespace of the Service.")] = ""


class ExternalEntityReference(Wire, frozen=True, kw_only=True):
    """An ExternalEntity by name."""

    name: Annotated[str, Meta(description="Name of the ExternalEntity.")] = ""
    namespace: Annotated[str, Meta(description="Namespace of the ExternalEntity.")] = ""


class NamedPort(Wire, frozen=True, kw_only=True):
    """A port to which a container gives a name."""

    port: Annotated[Int32, Meta(description="Port number.")] = 0
    name: Annotated[str, Meta(description="Name of the port.")] = ""
    protocol: Annotated[str, Meta(description="TCP, UDP or SCTP.")] = ""


class GroupMember(Wire, frozen=True, kw_only=True):
    """One thing that a group selects; two members are the same if all their fields are."""

    pod: Annotated[PodReference | None, Meta(description="The Pod.")] = None
    external_entity: Annotated[ExternalEntityReference | None, Meta(description="The ExternalEntity.")] = None
    ips: Annotated[tuple[bytes, ...], Meta(description="Its IP addresses.")] = ()
    ports: Annotated[tuple[NamedPort, ...], Meta(description="Its named ports.")] = ()
    node: Annotated[NodeReference | None, Meta(description="The Node.")] = None
    service: Annotated[
        ServiceReference | None,
        Meta(description="The Service; only in an AppliedToGroup, and only of type NodePort."),
    ] = None


class IPNet(Wire, frozen=True, kw_only=True, rename={"prefix_length": "prefixLength"}):
    """A network."""

    ip: Annotated[bytes, Meta(description="Its first address.")] = b""
    prefix_length: Annotated[Int32, Meta(description="Length of its prefix in bits.")] = 0


class IPBlock(Wire, frozen=True, kw_only=True):
    """A network with holes."""

    schema_keywords: ClassVar[dict[str, Any]] = {"required": ["cidr"]}
    cidr: Annotated[IPNet, Meta(description="The network.")]
    except_: Annotated[tuple[IPNet, ...], Meta(description="Networks inside it that do not count.")] = (
        msgspec.field(default=(), name="except")
    )


class AppliedToGroup(Wire, frozen=True, kw_only=True):
    """The Pods, Nodes or Services that a NetworkPolicy is applied to."""

    metadata: ObjectMetadata
    group_members: Annotated[
        tuple[GroupMember, ...], Meta(description="What is selected; an agent sees what is on its own Node.")
    ] = ()


class AddressGroup(Wire, frozen=True, kw_only=True):
    """The addresses of a rule's peers."""

    metadata: ObjectMetadata
    group_members: Annotated[
        tuple[GroupMember, ...], Meta(description="What is selected, with addresses.")
    ] = ()


class EgressGroup(Wire, frozen=True, kw_only=True):
    """The Pods that an Egress selects."""

    metadata: ObjectMetadata
    group_members: Annotated[
        tuple[GroupMember, ...], Meta(description="What is selected; an agent sees what is on its own Node.")
    ] = ()


class GroupPatch(Wire, frozen=True, kw_only=True):
    """How a group changed: the form of AppliedToGroupPatch and AddressGroupPatch."""

    metadata: ObjectMetadata
    added_group_members: Annotated[tuple[GroupMember, ...], Meta(description="Members that are new.")] = ()
    removed_group_members: Annotated[tuple[GroupMember, ...], Meta(description="Members that are gone.")] = ()


class AppliedToGroupPatch(GroupPatch, frozen=True, kw_only=True):
    """How an AppliedToGroup changed."""


class AddressGroupPatch(GroupPatch, frozen=True, kw_only=True):
    """How an AddressGroup changed."""


class EgressGroupPatch(Wire, frozen=True, kw_only=True):
    """How an EgressGroup changed. Upstream gave it no JSON names: metadata is inlined and the lists are capitalised."""

    name: str
    uid: str
    added_group_members: tuple[GroupMember, ...] | None = msgspec.field(name="AddedGroupMembers")
    removed_group_members: tuple[GroupMember, ...] | None = msgspec.field(name="RemovedGroupMembers")


class NetworkPolicyReference(Wire, frozen=True, kw_only=True):
    """The policy that a user wrote; `namespace` is empty for those of the cluster."""

    type: Annotated[
        str,
        Meta(description="K8sNetworkPolicy, AntreaClusterNetworkPolicy, AntreaNetworkPolicy and the like."),
    ] = ""
    namespace: Annotated[
        str, Meta(description="Namespace of the policy; empty for those of the cluster.")
    ] = ""
    name: Annotated[str, Meta(description="Name of the policy.")] = ""
    uid: Annotated[str, Meta(description="UID of the policy.")] = ""


class NetworkPolicyPeer(Wire, frozen=True, kw_only=True):
    """The other side of a rule: the union of all that is named here; an empty peer selects nothing."""

    address_groups: Annotated[tuple[str, ...], Meta(description="Names of AddressGroups.")] = ()
    ip_blocks: Annotated[tuple[IPBlock, ...], Meta(description="Networks.")] = msgspec.field(
        default=(), name="ipBlocks"
    )
    fqdns: Annotated[tuple[str, ...], Meta(description="Domain names or wildcards; egress rules only.")] = ()
    to_services: Annotated[
        tuple[ServiceReference, ...], Meta(description="Services; egress rules only.")
    ] = ()
    label_identities: Annotated[
        tuple[Int64, ...], Meta(description="Label identities of other clusters; ingress rules only.")
    ] = ()


class Service(Wire, frozen=True, kw_only=True):
    """Traffic that a rule matches."""

    protocol: Annotated[
        str | None, Meta(description="TCP, UDP, SCTP, ICMP or IGMP; TCP if nothing is said.")
    ] = None
    port: Annotated[
        int | str | None, Meta(description="Destination port, by number or name; nothing matches all.")
    ] = None
    end_port: Annotated[Int32 | None, Meta(description="Last port of the range that `port` begins.")] = None
    icmp_type: Annotated[Int32 | None, Meta(description="ICMP type; nothing matches all.")] = None
    icmp_code: Annotated[Int32 | None, Meta(description="ICMP code; nothing matches all.")] = None
    igmp_type: Annotated[Int32 | None, Meta(description="IGMP type.")] = None
    group_address: Annotated[str, Meta(description="Multicast group; IGMP only.")] = ""
    src_port: Annotated[Int32 | None, Meta(description="Source port.")] = None
    src_end_port: Annotated[
        Int32 | None, Meta(description="Last port of the range that `srcPort` begins.")
    ] = None


class HTTPProtocol(Wire, frozen=True, kw_only=True):
    """HTTP requests with this host, method and path; what is empty matches all."""

    host: Annotated[str, Meta(description="Host of the URI or of the Host header, without a port.")] = ""
    method: Annotated[
        str, Meta(description="GET, POST, PUT, HEAD, DELETE, TRACE, OPTIONS, CONNECT or PATCH.")
    ] = ""
    path: Annotated[str, Meta(description="Path of the URI, such as /index.html or /admin*.")] = ""


class TLSProtocol(Wire, frozen=True, kw_only=True):
    """TLS handshakes; an empty `sni` matches all."""

    sni: Annotated[str, Meta(description="Server name that the client asks for.")] = ""


class L7Protocol(Wire, frozen=True, kw_only=True):
    """One application protocol."""

    http: Annotated[HTTPProtocol | None, Meta(description="HTTP requests to match.")] = None
    tls: Annotated[TLSProtocol | None, Meta(description="TLS handshakes to match.")] = None


class NetworkPolicyRule(Wire, frozen=True, kw_only=True):
    """One direction of traffic; an `In` rule has only `from`, an `Out` rule only `to`."""

    direction: Annotated[str, Meta(description="In or Out.")] = ""
    from_: Annotated[NetworkPolicyPeer, Meta(description="Sources of an In rule.")] = msgspec.field(
        name="from"
    )
    to: Annotated[NetworkPolicyPeer, Meta(description="Destinations of an Out rule.")]
    services: Annotated[
        tuple[Service, ...], Meta(description="Ports and protocols; none at all matches all.")
    ] = ()
    priority: Annotated[
        Int32, Meta(description="Position in the policy; -1 in a Kubernetes NetworkPolicy.")
    ] = 0
    action: Annotated[str | None, Meta(description="Allow, Drop, Reject or Pass.")] = None
    enable_logging: Annotated[bool, Meta(description="Whether matches are logged.")]
    applied_to_groups: Annotated[
        tuple[str, ...],
        Meta(description="Names of AppliedToGroups of this rule, if the policy itself has none."),
    ] = ()
    name: Annotated[str, Meta(description="Unique within the policy.")] = ""
    l7_protocols: Annotated[tuple[L7Protocol, ...], Meta(description="Application protocols to match.")] = (
        msgspec.field(default=(), name="l7Protocols")
    )
    log_label: Annotated[str, Meta(description="Printed in each line of the log.")] = ""


class NetworkPolicy(Wire, frozen=True, kw_only=True):
    """A policy as agents need it; its name is the UID of the policy that a user wrote."""

    metadata: ObjectMetadata
    rules: Annotated[tuple[NetworkPolicyRule, ...], Meta(description="Rules in order.")] = ()
    applied_to_groups: Annotated[
        tuple[str, ...], Meta(description="Names of AppliedToGroups, unless each rule has its own.")
    ] = ()
    priority: Annotated[
        Number | None, doc("Lower wins within a tier; none for Kubernetes NetworkPolicies.", format="double")
    ] = None
    tier_priority: Annotated[
        Int32 | None, Meta(description="Priority of the tier; none for Kubernetes NetworkPolicies.")
    ] = None
    source_ref: Annotated[
        NetworkPolicyReference | None, Meta(description="The policy that a user wrote.")
    ] = None


class BundleFileServer(Wire, frozen=True, kw_only=True):
    """Where bundles go."""

    url: Annotated[str, Meta(description="URL of the SFTP server and directory.")]
    host_public_key: Annotated[bytes, Meta(description="Public key that the server must show.")] = b""


class BasicAuthentication(Wire, frozen=True, kw_only=True):
    """User name and password."""

    username: Annotated[str, Meta(description="User name.")]
    password: Annotated[str, Meta(description="Password.")]

    def __repr__(self) -> str:
        # what logs and errors show of a row that has it
        return "BasicAuthentication(...)"


class BundleServerAuthConfiguration(Wire, frozen=True, kw_only=True):
    """How agents prove who they are to the file server."""

    bearer_token: Annotated[str, Meta(description="Bearer token.")] = ""
    api_key: Annotated[str, Meta(description="API key.")] = ""
    basic_authentication: Annotated[
        BasicAuthentication | None, Meta(description="User name and password.")
    ] = None

    def __repr__(self) -> str:
        # as above
        return "BundleServerAuthConfiguration(...)"


class SupportBundleCollection(Wire, frozen=True, kw_only=True):
    """A collection that agents of the selected Nodes have to make."""

    schema_keywords: ClassVar[dict[str, Any]] = {"required": []}
    metadata: ObjectMetadata
    expired_at: Annotated[str | None, Meta(description="When agents give up.")]
    since_time: Annotated[str, Meta(description="Only logs younger than this duration.")] = ""
    file_server: Annotated[BundleFileServer, Meta(description="Where bundles go.")]
    authentication: Annotated[
        BundleServerAuthConfiguration, Meta(description="Credentials for the file server.")
    ]
