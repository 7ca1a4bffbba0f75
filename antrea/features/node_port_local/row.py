"""Rows of NodePortLocal: annotated Services, Pods of this Node, the ports that these ask for, and those they have."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar, NamedTuple

from antrea.apis import core
from antrea.apis.annotation import PORT_LOCAL, PORT_LOCAL_ENABLED
from antrea.facts.fact import Fact
from antrea.facts.family import one_per_family
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import OF_THIS_NODE, Watched
from antrea.features.framework.container_port import container_ports
from antrea.features.node_port_local.mapping import PortMapping, mappings_of
from antrea.openflow.match import PROTOCOLS

FAMILIES = {False: "IPv4", True: "IPv6"}
"""Names of the API by whether it is IPv6."""
WITHOUT = frozenset({"NodePort", "ExternalName"})
"""Types of Services whose annotation has no effect."""
ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of Pods that do not run again."""


class PortLocalService(Fact, frozen=True):
    """A Service that gives its Pods ports of their Nodes."""

    namespace: str
    name: str
    selector: tuple[tuple[str, str], ...]
    """Sorted labels, all of which a Pod must have."""
    ports: tuple[tuple[str, int | str], ...]
    """Protocol and target port, as a number or by name."""
    families: tuple[str, ...]
    """IPv4, IPv6."""

    indexes: ClassVar[Mapping[str, Callable[[PortLocalService], Iterable[Hashable]]]] = {
        "namespace": lambda row: (row.namespace,)
    }

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ContainerPort(NamedTuple):
    """A port that a container declares."""

    name: str
    number: int
    protocol: str
    """TCP, UDP or SCTP."""
    host_port: int


class PortLocalPod(Fact, frozen=True):
    """A Pod of this Node with labels, addresses and declared ports."""

    namespace: str
    name: str
    uid: str
    labels: tuple[tuple[str, str], ...]
    ips: tuple[str, ...]
    """At most one per family; none: it has ended, or does not have any yet."""
    ports: tuple[ContainerPort, ...]
    mappings: tuple[PortMapping, ...] = ()
    """Content of the annotation nodeportlocal.antrea.io, sorted; empty also if it is not readable."""
    annotated: bool = False
    """Whether it has that annotation at all."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PortRequest(Fact, frozen=True):
    """A port of a Pod, in one family, that has to be reached at some port of this Node; derived."""

    pod: str
    """namespace/name"""
    uid: str
    ip: str
    port: int
    protocol: str
    """tcp, udp or sctp."""
    ipv6: bool

    @property
    def key(self) -> str:
        return request_key(self.pod, self.port, self.protocol, ipv6=self.ipv6)


class HeldPort(Fact, frozen=True):
    """Answer to a PortRequest; the agent's port allocator writes it."""

    request: str
    """Key of the PortRequest."""
    node_port: int
    """Port; 0 if none is free."""
    message: str = ""
    """Why there is none, or why it is not the one that the Pod had before; empty if nothing is to be reported."""

    @property
    def key(self) -> str:
        return self.request


class PortsDecided(Fact, frozen=True):
    """All Services and Pods are known, and each request has its answer; the agent's port allocator writes it once."""


def request_key(pod: str, port: int, protocol: str, *, ipv6: bool) -> str:
    """Key of PortRequest and HeldPort."""
    return f"{pod}:{port}/{protocol}/{FAMILIES[ipv6]}"


def port_local_service(stored: core.Service) -> PortLocalService | None:
    """None for a Service without the annotation, and for one whose annotation has no effect.

    # parity: pkg/agent/nodeportlocal/k8s/npl_controller.go getTargetPortsForServicesOfPod, but for SCTP
    """
    meta, spec = stored.metadata, stored.spec
    if meta.annotations.get(PORT_LOCAL_ENABLED) != "true" or spec.type in WITHOUT or not spec.selector:
        return None
    ports = {
        (port.protocol, port.target_port or port.port) for port in spec.ports if port.protocol in PROTOCOLS
    }
    return PortLocalService(
        meta.namespace,
        meta.name,
        tuple(sorted(spec.selector.items())),
        tuple(sorted(ports, key=str)),
        spec.ip_families,
    )


def port_local_pod(stored: core.Pod) -> PortLocalPod:
    """Make the row of any Pod, also one with the Node's network: its ports are often the Node's already."""
    meta, status = stored.metadata, stored.status
    annotation = meta.annotations.get(PORT_LOCAL, "")
    ips = (ip for pod_ip in status.pod_ips if (ip := canonical(pod_ip.ip)))
    return PortLocalPod(
        meta.namespace,
        meta.name,
        meta.uid,
        tuple(meta.labels.items()),
        () if status.phase in ENDED else one_per_family(ips),
        tuple(
            ContainerPort(port.name, port.container_port, port.protocol, port.host_port)
            for port in container_ports(stored.spec)
        ),
        mappings_of(annotation),
        annotation != "",
    )


WATCHED = (
    Watched("/api/v1/services", core.Service, PortLocalService, port_local_service),
    Watched("/api/v1/pods", core.Pod, PortLocalPod, port_local_pod, field_selector=OF_THIS_NODE),
)
"""Watches of an agent while nodePortLocal.enable is true."""
