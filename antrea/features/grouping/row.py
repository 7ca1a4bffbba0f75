"""Rows of what can be in a group, from objects of the API.

parity: pkg/util/k8s/node.go GetNodeAllAddrs, pkg/util/externalnode GenerateEntityNodeKey
"""

from __future__ import annotations

import ipaddress
import sys
from typing import TYPE_CHECKING

from antrea.apis.annotation import AUDIT, ENABLE_LOGGING, ENFORCEMENT
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
"""Words that Go's strconv.ParseBool takes."""
ENDED = ("Succeeded", "Failed")
TRANSPORT = "node.antrea.io/transport-addresses"


def _text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def pod_row(found: core.Pod) -> Pod | None:
    """None for a Pod that has ended: its address may be another's by now."""
    if found.status.phase in ENDED:
        return None
    meta, labels = found.metadata, found.metadata.labels
    if found.spec.service_account_name:
        labels = {**labels, SERVICE_ACCOUNT: found.spec.service_account_name}
    return Pod(
        sys.intern(meta.namespace),
        meta.name,
        labels=sys.intern(f"{meta.namespace}/{_text(labels)}"),
        node=sys.intern(found.spec.node_name),
        ips=tuple(one.ip for one in found.status.pod_ips),
        host_network=found.spec.host_network,
        ports=tuple(
            (sys.intern(port.name), port.container_port, sys.intern(port.protocol))
            for port in container_ports(found.spec)
            if port.name
        ),
    )


def namespace_row(found: core.Namespace) -> Namespace:
    """A Namespace by its labels, and by whether it wants its policies logged, or audited."""
    meta = found.metadata
    logs = meta.annotations.get(ENABLE_LOGGING, "") in TRUE
    is_audited = meta.annotations.get(ENFORCEMENT) == AUDIT
    return Namespace(meta.name, tuple(sorted(meta.labels.items())), logs, is_audited)


def node_row(found: core.Node) -> ClusterNode:
    """A Node by its labels and by its addresses of its own, as gateway of its Pods, and as end of tunnels."""
    labels = label_key(NODE, "", _text(found.metadata.labels))
    return ClusterNode(found.metadata.name, labels, tuple(sorted(set(_node_ips(found)))))


def _node_ips(found: core.Node) -> Iterator[str]:
    by_type: dict[str, list[str]] = {}
    for one in found.status.addresses:
        by_type.setdefault(one.type, []).append(one.address)
    yield from one_per_family(by_type.get("InternalIP") or by_type.get("ExternalIP") or ())
    spec = found.spec
    for cidr in one_per_family(spec.pod_cidrs or ((spec.pod_cidr,) if spec.pod_cidr else ())):
        yield str(ipaddress.ip_network(cidr, strict=False).network_address + 1)
    transport = found.metadata.annotations.get(TRANSPORT, "")
    yield from one_per_family(transport.split(",") if transport else ())


def service_row(found: core.Service) -> ClusterService:
    """A Service by the Pods that it selects."""
    meta = found.metadata
    return ClusterService(meta.namespace, meta.name, tuple(sorted(found.spec.selector.items())))


def entity_row(found: ExternalEntity) -> Entity:
    """An ExternalEntity; one made for an ExternalNode is at the agent that has that name with its Namespace."""
    meta, spec = found.metadata, found.spec
    made = any(owner.kind == "ExternalNode" for owner in meta.owner_references[:1])
    return Entity(
        meta.namespace,
        meta.name,
        labels=label_key(ENTITY, meta.namespace, _text(meta.labels)),
        node=f"{meta.namespace}/{spec.external_node}" if made and spec.external_node else spec.external_node,
        ips=tuple(one.ip for one in spec.endpoints),
        ports=tuple(
            (port.name, port.port, port.protocol or "")
            for port in spec.ports
            if isinstance(port.port, int)  # a name is none that policies could match
        ),
    )
