"""controlplane.antrea.io/v1beta2, the other direction: what agents post, and questions that are answered at once."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from antrea.apis.controlplane import GroupMember, IPNet, NetworkPolicyReference, PodReference
from antrea.apis.meta import Int32, Int64, ObjectMetadata, Wire
from antrea.apis.stats import RuleTrafficStats, TrafficStats


class NetworkPolicyNodeStatus(Wire, frozen=True, kw_only=True):
    """How far one Node is with a policy."""

    schema_keywords: ClassVar[dict[str, Any]] = {"required": ["realizationFailure"]}
    node_name: Annotated[str, Meta(description="Name of the Node.")] = ""
    generation: Annotated[Int64, Meta(description="Generation of the policy that is realized.")] = 0
    realization_failure: Annotated[bool, Meta(description="Whether realizing it failed.")] = False
    message: Annotated[str, Meta(description="Why it failed.")] = ""


class NetworkPolicyStatus(Wire, frozen=True, kw_only=True):
    """How far Nodes are with the policy of the same name."""

    metadata: ObjectMetadata = ObjectMetadata()
    nodes: Annotated[tuple[NetworkPolicyNodeStatus, ...], Meta(description="One element per Node.")] = ()


class SupportBundleCollectionNodeStatus(Wire, frozen=True, kw_only=True):
    """How far one Node is with a collection."""

    node_name: Annotated[str, Meta(description="Name of the Node or ExternalNode.")] = ""
    node_namespace: Annotated[str, Meta(description="Namespace of the ExternalNode.")] = ""
    node_type: Annotated[str, Meta(description="Node or ExternalNode.")] = ""
    completed: Annotated[bool, Meta(description="Whether the bundle has been uploaded.")] = False
    error: Annotated[str, Meta(description="Why it has not.")] = ""


class SupportBundleCollectionStatus(Wire, frozen=True, kw_only=True):
    """How far Nodes are with the collection of the same name."""

    metadata: ObjectMetadata = ObjectMetadata()
    nodes: Annotated[
        tuple[SupportBundleCollectionNodeStatus, ...], Meta(description="One element per Node.")
    ] = ()


class MulticastGroupInfo(Wire, frozen=True, kw_only=True):
    """Pods of one Node that joined a multicast group."""

    group: Annotated[str, Meta(description="IP of the group.")] = ""
    pods: Annotated[tuple[PodReference, ...], Meta(description="Pods that joined it.")] = ()


class NetworkPolicyStats(Wire, frozen=True, kw_only=True):
    """Traffic that one policy, or one Egress, counted since the last report."""

    network_policy: Annotated[NetworkPolicyReference, Meta(description="The policy, or the Egress.")] = (
        NetworkPolicyReference()
    )
    traffic_stats: Annotated[TrafficStats, Meta(description="What it counted.")] = TrafficStats()
    rule_traffic_stats: Annotated[
        tuple[RuleTrafficStats, ...],
        Meta(description="What its rules counted; none for Kubernetes NetworkPolicies and Egresses."),
    ] = ()


class NodeStatsSummary(Wire, frozen=True, kw_only=True):
    """Traffic that one Node counted since its last report; its name is the Node's."""

    metadata: ObjectMetadata = ObjectMetadata()
    network_policies: Annotated[
        tuple[NetworkPolicyStats, ...], Meta(description="Of Kubernetes NetworkPolicies.")
    ] = ()
    antrea_cluster_network_policies: Annotated[
        tuple[NetworkPolicyStats, ...], Meta(description="Of Antrea ClusterNetworkPolicies.")
    ] = ()
    antrea_network_policies: Annotated[
        tuple[NetworkPolicyStats, ...], Meta(description="Of Antrea NetworkPolicies.")
    ] = ()
    egresses: Annotated[
        tuple[NetworkPolicyStats, ...],
        Meta(description="Our own field: of Egresses, whose references have the type Egress."),
    ] = ()
    multicast: Annotated[
        tuple[MulticastGroupInfo, ...], Meta(description="Multicast groups with members here.")
    ] = ()


class AdvertisedObject(Wire, frozen=True, kw_only=True):
    """A Service or an Egress whose addresses a Node advertises to routers."""

    kind: Annotated[str, Meta(description="Service or Egress.")] = ""
    namespace: Annotated[str, Meta(description="Namespace of the Service.")] = ""
    name: Annotated[str, Meta(description="Name of the object.")] = ""
    ip_families: Annotated[tuple[str, ...], Meta(description="Families of the addresses: IPv4, IPv6.")] = ()


class NodeBgpSummary(Wire, frozen=True, kw_only=True):
    """Our own kind: what one Node advertises by BGP, and to which routers; its name is the Node's."""

    metadata: ObjectMetadata = ObjectMetadata()
    peers: Annotated[
        tuple[str, ...], Meta(description="Addresses of routers with an established session.")
    ] = ()
    objects: Annotated[
        tuple[AdvertisedObject, ...], Meta(description="Objects whose addresses are advertised.")
    ] = ()


class Entity(Wire, frozen=True, kw_only=True):
    """One end of a connection."""

    pod: Annotated[PodReference | None, Meta(description="The Pod.")] = None


class NetworkPolicyEvaluationRequest(Wire, frozen=True, kw_only=True):
    """Ends of the connection to evaluate."""

    source: Annotated[Entity, Meta(description="Who opens the connection.")] = Entity()
    destination: Annotated[Entity, Meta(description="Who is connected to.")] = Entity()


class RuleRef(Wire, frozen=True, kw_only=True):
    """A rule, short."""

    direction: Annotated[str, Meta(description="In or Out.")] = ""
    name: Annotated[str, Meta(description="Name of the rule.")] = ""
    action: Annotated[str | None, Meta(description="What the rule does; none for default isolation.")] = None


class NetworkPolicyEvaluationResponse(Wire, frozen=True, kw_only=True):
    """The rule that decides."""

    network_policy: Annotated[NetworkPolicyReference, Meta(description="Its policy.")]
    rule_index: Annotated[
        Int32,
        Meta(
            description="Position of the rule; 2147483647 is the default isolation of a Kubernetes NetworkPolicy."
        ),
    ] = 0
    rule: Annotated[RuleRef, Meta(description="The rule.")]


class NetworkPolicyEvaluation(Wire, frozen=True, kw_only=True):
    """Asks which rule decides about a connection."""

    metadata: ObjectMetadata = ObjectMetadata()
    request: Annotated[NetworkPolicyEvaluationRequest | None, Meta(description="The question.")] = None
    response: Annotated[
        NetworkPolicyEvaluationResponse | None, Meta(description="The answer; none if no rule matches.")
    ] = None


class Members(Wire, frozen=True, kw_only=True):
    """Present members of a group, a page of them with `limit`: the form of ClusterGroupMembers and GroupMembers."""

    metadata: ObjectMetadata
    effective_members: Annotated[tuple[GroupMember, ...] | None, Meta(description="Members, sorted by name.")]
    effective_ip_blocks: Annotated[
        tuple[IPNet, ...] | None, Meta(description="Networks, if the group names some.")
    ] = msgspec.field(name="effectiveIPBlocks")
    total_members: Annotated[Int64, Meta(description="Members on all pages.")]
    total_pages: Annotated[Int64, Meta(description="Number of pages.")]
    current_page: Annotated[Int64, Meta(description="This page, from 1.")]


class ClusterGroupMembers(Members, frozen=True, kw_only=True):
    """Present members of a ClusterGroup."""


class GroupMembers(Members, frozen=True, kw_only=True):
    """Present members of a Group."""


class GroupReference(Wire, frozen=True, kw_only=True):
    """A Group, or a ClusterGroup if there is no Namespace."""

    namespace: Annotated[str, Meta(description="Namespace of the Group; empty for a ClusterGroup.")] = ""
    name: Annotated[str, Meta(description="Name of the group.")] = ""
    uid: Annotated[str, Meta(description="UID of the group.")] = ""


class Association(Wire, frozen=True, kw_only=True):
    """The form of GroupAssociation and IPGroupAssociation."""

    metadata: ObjectMetadata
    associated_groups: Annotated[tuple[GroupReference, ...], Meta(description="Groups that select it.")]


class GroupAssociation(Association, frozen=True, kw_only=True):
    """Groups that select a Pod or ExternalEntity of this name."""


class IPGroupAssociation(Association, frozen=True, kw_only=True):
    """Groups that select what has this IP."""
