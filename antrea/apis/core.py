"""Objects of the core API group: only the fields that are read or written.

Source: https://kubernetes.io/docs/reference/kubernetes-api/
"""

from __future__ import annotations

from typing import Literal

import msgspec


class CoreStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Unknown fields of the API server are not looked at. The garbage collector does not visit what is decoded, a tree."""


class OwnerReference(CoreStruct, frozen=True):
    """The object that a Pod was made by."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(CoreStruct, frozen=True):
    """Metadata of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    deletion_timestamp: str = ""
    """RFC 3339; not empty once the object is being deleted."""


class NodeAddress(CoreStruct, frozen=True):
    """One address of a Node; `type` is InternalIP, ExternalIP, Hostname and the like."""

    type: str
    address: str


class Taint(CoreStruct, frozen=True):
    """Taint that keeps Pods off a Node, or announces what is about to happen to it."""

    key: str = ""


class NodeSpec(CoreStruct, frozen=True):
    """Pod CIDRs of a Node, at most one per family; `pod_cidr` is the first of `pod_cidrs`."""

    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = msgspec.field(default=(), name="podCIDRs")
    unschedulable: bool = False
    """Cordoned."""
    taints: tuple[Taint, ...] = ()


class NodeStatus(CoreStruct, frozen=True):
    """Addresses of a Node, as kubelet reports them."""

    addresses: tuple[NodeAddress, ...] = ()


class Node(CoreStruct, frozen=True):
    """/api/v1/nodes"""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ContainerPort(CoreStruct, frozen=True):
    """A port of a container."""

    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"
    host_port: int = 0


class Container(CoreStruct, frozen=True):
    """Fields read of a container."""

    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    """Always for an init container that runs as long as its Pod (a native sidecar)."""


class PodSpec(CoreStruct, frozen=True):
    """Where a Pod runs."""

    node_name: str = ""
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    service_account_name: str = ""


class PodIP(CoreStruct, frozen=True):
    """One address of a Pod."""

    ip: str = ""


class PodStatus(CoreStruct, frozen=True):
    """Addresses of a Pod, at most one per family; `phase` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")


class Pod(CoreStruct, frozen=True):
    """/api/v1/pods"""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServicePort(CoreStruct, frozen=True):
    """A port of a Service; `target_port` is that of its Pods, as a number or by the name that their containers give it."""

    port: int = 0
    protocol: str = "TCP"
    name: str = ""
    node_port: int = 0
    target_port: int | str = 0


class ClientIPConfig(CoreStruct, frozen=True):
    """For how many seconds a client stays with its Endpoint."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(CoreStruct, frozen=True):
    """Settings of sessionAffinity ClientIP."""

    client_ip: ClientIPConfig = msgspec.field(default=ClientIPConfig(), name="clientIP")


class ServiceSpec(CoreStruct, frozen=True):
    """Which Pods are behind a Service, and by what it is reached; `cluster_ips` of a headless one is `("None",)`."""

    selector: dict[str, str] = {}
    type: str = "ClusterIP"
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")
    ip_families: tuple[str, ...] = msgspec.field(default=(), name="ipFamilies")
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    ports: tuple[ServicePort, ...] = ()
    session_affinity: str = ""
    session_affinity_config: SessionAffinityConfig = SessionAffinityConfig()
    internal_traffic_policy: str = ""
    external_traffic_policy: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()
    health_check_node_port: int = 0
    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")
    load_balancer_class: str = ""


class LoadBalancerIngress(CoreStruct, frozen=True):
    """An address of a load balancer; `ip_mode` Proxy: packets to it are the load balancer's alone."""

    ip: str = ""
    ip_mode: str = "VIP"


class LoadBalancerStatus(CoreStruct, frozen=True):
    """Addresses that a load balancer gave a Service."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceCondition(CoreStruct, frozen=True):
    """One condition of a Service."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ServiceStatus(CoreStruct, frozen=True):
    """Addresses that load balancers gave a Service."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: tuple[ServiceCondition, ...] = ()


class ServiceMeta(ObjectMeta, frozen=True):
    """Metadata by which the older of two Services that claim one address has it."""

    creation_timestamp: str = ""


class Service(CoreStruct, frozen=True):
    """/api/v1/services"""

    metadata: ServiceMeta = ServiceMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class Namespace(CoreStruct, frozen=True):
    """Fields read of a Namespace."""

    metadata: ObjectMeta = ObjectMeta()


class OnlyMetadata(CoreStruct, frozen=True):
    """An object of any kind, of which nothing else is read."""

    metadata: ObjectMeta = ObjectMeta()


class ObjectReference(CoreStruct, frozen=True):
    """The object that an Event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


class EventSource(CoreStruct, frozen=True):
    """Component that reports an Event; `host` is a Node name."""

    component: str = ""
    host: str = ""


class Event(CoreStruct, frozen=True, omit_defaults=False):
    """/api/v1/namespaces/NAMESPACE/events; times are RFC 3339 in UTC."""

    metadata: ObjectMeta
    involved_object: ObjectReference
    reason: str
    message: str
    type: Literal["Normal", "Warning"]
    source: EventSource
    first_timestamp: str
    last_timestamp: str
    count: int = 1


class ListMeta(CoreStruct, frozen=True):
    """Where a list stands: `continue_` is the token of the next page, empty at the end."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Status(CoreStruct, frozen=True):
    """The API server's answer to what it refuses."""

    message: str = ""
    reason: str = ""
    code: int = 0
