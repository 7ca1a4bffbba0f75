"""Rows of possible group members, from objects of the API.

parity: pkg/util/k8s/node.go GetNodeAllAddrs, pkg/util/externalnode GenerateEntityNodeKey
"""

from __future__ import annotations

import ipaddress
import sys
from typing import TYPE_CHECKING

from antrea.apis.annotation import AUDIT, ENABLE_LOGGING, ENFORCEMENT
from antrea.apis.crd.external import MACHINE_KIND
from antrea.facts.cluster import ClusterNode, ClusterService, Entity, Namespace, Pod
from antrea.facts.family import one_per_family
from antrea.facts.group import ENTITY, NODE, label_key
from antrea.features.framework.container_port import container_ports
from antrea.features.grouping.selector import SERVICE_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.apis import core
    from antrea.apis.crd.external import ExternalEntity

TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""Texts that Go's strconv.ParseBool reads as true."""
ENDED = ("Succeeded", "Failed")
TRANSPORT = "node.antrea.io/transport-addresses"


def _text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def pod_row(pod: core.Pod) -> Pod | None:
    """Make the row of a Pod; None if it has ended, since another may have its address."""
    if pod.status.phase in ENDED:
        return None
    meta, labels = pod.metadata, pod.metadata.labels
    if pod.spec.service_account_name:
        labels = {**labels, SERVICE_ACCOUNT: pod.spec.service_account_name}
    return Pod(
        sys.intern(meta.namespace),
        meta.name,
        labels=sys.intern(f"{meta.namespace}/{_text(labels)}"),
        node=sys.intern(pod.spec.node_name),
        ips=tuple(pod_ip.ip for pod_ip in pod.status.pod_ips),
        host_network=pod.spec.host_network,
        ports=tuple(
            (sys.intern(port.name), port.container_port, sys.intern(port.protocol))
            for port in container_ports(pod.spec)
            if port.name
        ),
    )


def namespace_row(namespace: core.Namespace) -> Namespace:
    """Make the row of a Namespace: its labels, and whether its policies are logged, or audited."""
    meta = namespace.metadata
    logs = meta.annotations.get(ENABLE_LOGGING, "") in TRUE
    is_audited = meta.annotations.get(ENFORCEMENT) == AUDIT
    return Namespace(meta.name, tuple(sorted(meta.labels.items())), logs, is_audited)


def node_row(node: core.Node) -> ClusterNode:
    """Make the row of a Node: its labels, and its addresses as a host, as gateway of its Pods, and as end of tunnels."""
    labels = label_key(NODE, "", _text(node.metadata.labels))
    return ClusterNode(node.metadata.name, labels, tuple(sorted(set(_node_ips(node)))))


def _node_ips(node: core.Node) -> Iterator[str]:
    by_type: dict[str, list[str]] = {}
    for address in node.status.addresses:
        by_type.setdefault(address.type, []).append(address.address)
    yield from one_per_family(by_type.get("InternalIP") or by_type.get("ExternalIP") or ())
    spec = node.spec
    for cidr in one_per_family(spec.pod_cidrs or ((spec.pod_cidr,) if spec.pod_cidr else ())):
        yield str(ipaddress.ip_network(cidr, strict=False).network_address + 1)
    transport = node.metadata.annotations.get(TRANSPORT, "")
    yield from one_per_family(transport.split(",") if transport else ())


def service_row(service: core.Service) -> ClusterService:
    """Make the row of a Service: the Pods that it selects."""
    meta = service.metadata
    return ClusterService(meta.namespace, meta.name, tuple(sorted(service.spec.selector.items())))


def entity_row(entity: ExternalEntity) -> Entity:
    """Make the row of an ExternalEntity; one made for an ExternalNode is at the agent with that name and its Namespace."""
    meta, spec = entity.metadata, entity.spec
    made = any(owner.kind == MACHINE_KIND for owner in meta.owner_references[:1])
    return Entity(
        meta.namespace,
        meta.name,
        labels=label_key(ENTITY, meta.namespace, _text(meta.labels)),
        node=f"{meta.namespace}/{spec.external_node}" if made and spec.external_node else spec.external_node,
        ips=tuple(endpoint.ip for endpoint in spec.endpoints),
        ports=tuple(
            (port.name, port.port, port.protocol or "")
            for port in spec.ports
            if isinstance(port.port, int)  # a name is none that policies could match
        ),
    )
