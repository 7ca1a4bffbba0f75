"""ClusterGroup and Group of crd.antrea.io/v1beta1.

Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/{clustergroup,group}.yaml
"""

from __future__ import annotations

from typing import Annotated

from antrea.apis.crd.part import Condition, CrdStruct, IPBlock, LabelSelector, Metadata, selector
from antrea.apis.schema import doc


class ServiceReference(CrdStruct, frozen=True):
    """A Service by name."""

    name: Annotated[str, doc("Name of the Service.")] = ""
    namespace: Annotated[str, doc("Namespace of the Service; of the Group if empty.")] = ""


class GroupSpec(CrdStruct, frozen=True):
    """Members of the group: one of these fields, or `namespaceSelector` with one of the others that select."""

    child_groups: Annotated[tuple[str, ...], doc("Groups whose members belong to it.")] = ()
    pod_selector: Annotated[LabelSelector | None, selector("Pods")] = None
    namespace_selector: Annotated[LabelSelector | None, selector("Namespaces of those Pods")] = None
    node_selector: Annotated[LabelSelector | None, selector("Nodes")] = None
    external_entity_selector: Annotated[LabelSelector | None, selector("ExternalEntities")] = None
    ip_blocks: Annotated[tuple[IPBlock, ...], doc("Addresses.")] = ()
    service_reference: Annotated[ServiceReference | None, doc("Pods behind this Service.")] = None


class GroupStatus(CrdStruct, frozen=True):
    """Whether the members are known."""

    conditions: Annotated[tuple[Condition, ...], doc("GroupMembersComputed.")] = ()


class ClusterGroup(CrdStruct, frozen=True):
    """Members for policies of the cluster."""

    metadata: Metadata = Metadata()
    spec: GroupSpec = GroupSpec()
    status: GroupStatus = GroupStatus()


class Group(CrdStruct, frozen=True):
    """Members for policies of one Namespace."""

    metadata: Metadata = Metadata()
    spec: Annotated[GroupSpec, doc("", without=("nodeSelector",))] = GroupSpec()
    status: GroupStatus = GroupStatus()
