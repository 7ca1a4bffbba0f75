"""The objects that decide on packets, as the API server lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antrea.apis import core, networking
from antrea.apis.crd import external, group, network_policy, tier, traffic_control
from antrea.apis.discovery import EndpointSlice
from antrea.apis.network_policy_api import v1alpha1, v1alpha2
from antrea.apis.network_policy_api.part import GROUP
from antrea.decoding import decode_tree, guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ANTREA = "crd.antrea.io/v1beta1"


class Objects(msgspec.Struct, frozen=True):
    """All of a cluster, each kind in any order."""

    namespaces: tuple[core.Namespace, ...] = ()
    pods: tuple[core.Pod, ...] = ()
    nodes: tuple[core.Node, ...] = ()
    services: tuple[core.Service, ...] = ()
    endpoint_slices: tuple[EndpointSlice, ...] = ()
    kube_policies: tuple[networking.NetworkPolicy, ...] = ()
    cluster_policies: tuple[network_policy.ClusterNetworkPolicy, ...] = ()
    policies: tuple[network_policy.NetworkPolicy, ...] = ()
    tiers: tuple[tier.Tier, ...] = ()
    cluster_groups: tuple[group.ClusterGroup, ...] = ()
    groups: tuple[group.Group, ...] = ()
    entities: tuple[external.ExternalEntity, ...] = ()
    admin_policies: tuple[v1alpha1.AdminNetworkPolicy, ...] = ()
    baseline_policies: tuple[v1alpha1.BaselineAdminNetworkPolicy, ...] = ()
    tiered_policies: tuple[v1alpha2.ClusterNetworkPolicy, ...] = ()
    """Policies of policy.networking.k8s.io."""
    traffic_controls: tuple[traffic_control.TrafficControl, ...] = ()


class Kind(NamedTuple):
    """Where objects of a kind are listed, and the field of `Objects` that they go to."""

    field: str
    api_version: str
    kind: str
    plural: str
    struct: type[msgspec.Struct]

    @property
    def title(self) -> str:
        """Name of the kind in files: pods, networkpolicies.networking.k8s.io."""
        group, slash, _ = self.api_version.partition("/")
        return f"{self.plural}.{group}" if slash else self.plural

    @property
    def path(self) -> str:
        """The list of all Namespaces, at the API server."""
        return f"{'/apis' if '/' in self.api_version else '/api'}/{self.api_version}/{self.plural}"


KINDS: tuple[Kind, ...] = (
    Kind("namespaces", "v1", "Namespace", "namespaces", core.Namespace),
    Kind("pods", "v1", "Pod", "pods", core.Pod),
    Kind("nodes", "v1", "Node", "nodes", core.Node),
    Kind("services", "v1", "Service", "services", core.Service),
    Kind("endpoint_slices", "discovery.k8s.io/v1", "EndpointSlice", "endpointslices", EndpointSlice),
    Kind(
        "kube_policies",
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "networkpolicies",
        networking.NetworkPolicy,
    ),
    Kind(
        "cluster_policies",
        ANTREA,
        "ClusterNetworkPolicy",
        "clusternetworkpolicies",
        network_policy.ClusterNetworkPolicy,
    ),
    Kind("policies", ANTREA, "NetworkPolicy", "networkpolicies", network_policy.NetworkPolicy),
    Kind("tiers", ANTREA, "Tier", "tiers", tier.Tier),
    Kind("cluster_groups", ANTREA, "ClusterGroup", "clustergroups", group.ClusterGroup),
    Kind("groups", ANTREA, "Group", "groups", group.Group),
    Kind(
        "entities",
        "crd.antrea.io/v1alpha2",
        "ExternalEntity",
        "externalentities",
        external.ExternalEntity,
    ),
    Kind(
        "admin_policies",
        f"{GROUP}/v1alpha1",
        "AdminNetworkPolicy",
        "adminnetworkpolicies",
        v1alpha1.AdminNetworkPolicy,
    ),
    Kind(
        "baseline_policies",
        f"{GROUP}/v1alpha1",
        "BaselineAdminNetworkPolicy",
        "baselineadminnetworkpolicies",
        v1alpha1.BaselineAdminNetworkPolicy,
    ),
    Kind(
        "tiered_policies",
        f"{GROUP}/v1alpha2",
        "ClusterNetworkPolicy",
        "clusternetworkpolicies",
        v1alpha2.ClusterNetworkPolicy,
    ),
    Kind(
        "traffic_controls",
        "crd.antrea.io/v1alpha2",
        "TrafficControl",
        "trafficcontrols",
        traffic_control.TrafficControl,
    ),
)
GATES = {
    "admin_policies": "AdminNetworkPolicy",
    "baseline_policies": "AdminNetworkPolicy",
    "tiered_policies": "ClusterNetworkPolicy",
}
"""Feature gates of the controller by field: without, objects of a kind are stored and not enforced."""


AGENT_GATES = {"traffic_controls": "TrafficControl"}
"""The same of agents."""


def name_of(row: Any) -> tuple[str, str]:
    """Return the Namespace and name of an object."""
    return row.metadata.namespace, row.metadata.name


def objects(lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> Objects:
    """Decode lists by field of `Objects`, from JSON or YAML. Raises Invalid, which names the object."""
    kinds = {kind.field: kind for kind in KINDS}
    return Objects(
        **{
            field: tuple(_decoded(kinds[field], manifest) for manifest in rows)
            for field, rows in lists.items()
        }
    )


def _decoded(kind: Kind, manifest: Mapping[str, Any]) -> Any:
    try:
        return decode_tree(guarded(kind.kind, _without_nulls, manifest), kind.struct, kind.kind)
    except Invalid as error:
        meta = manifest.get("metadata") or {}
        name = "/".join(part for part in (meta.get("namespace"), meta.get("name")) if part)
        raise Invalid(f"{kind.kind} {name}", error.why) from error


def _without_nulls(node: Any) -> Any:
    """Remove nulls: Go's clients write them for unset fields."""
    if isinstance(node, dict):
        return {key: _without_nulls(value) for key, value in node.items() if value is not None}
    if isinstance(node, list):
        return [_without_nulls(value) for value in node]
    return node
