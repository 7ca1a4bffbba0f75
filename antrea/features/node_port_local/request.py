"""Ports of a Pod of this Node that have to be reached at the Node, and the Pod's annotation about them.

parity: pkg/agent/nodeportlocal/k8s/npl_controller.go handleAddUpdatePod
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.annotation import PORT_LOCAL, PodAnnotation
from antrea.engine import Act
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.features.node_port_local.mapping import PortMapping, sorted_mappings, text_of
from antrea.features.node_port_local.row import (
    FAMILIES,
    HeldPort,
    PortLocalPod,
    PortLocalService,
    PortRequest,
    PortsDecided,
    request_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class Target(NamedTuple):
    """A port of a Pod, in one family, that an annotated Service leads to."""

    port: int
    protocol: str
    """tcp, udp or sctp."""
    ipv6: bool
    host_port: int
    """Port of the Node that the Pod has anyway; 0 if none."""


class RecordPortMessage(Act, frozen=True):
    """Event on a Pod about its ports."""

    namespace: str
    pod: str
    uid: str
    message: str
    lacks: bool
    """Whether it has no port of the Node; else it has another one than before."""


def targets(facts: Facts, pod: PortLocalPod) -> list[Target]:
    """Return each target once, sorted, in the families that its Services, its Node and the Pod itself have."""
    ports: set[tuple[int, str, str]] = set()
    for service in _services(facts, pod):
        for family in service.families:
            ports.update((port, protocol, family) for port, protocol in _numbers(service, pod))
    held = {FAMILIES[is_ipv6(ip)] for ip in pod.ips}
    held &= {FAMILIES[ipv6] for ipv6 in facts.need(ThisNode).families}
    hosts = {(port.number, port.protocol): port.host_port for port in pod.ports if port.host_port}
    return [
        Target(port, protocol.lower(), family == FAMILIES[True], hosts.get((port, protocol), 0))
        for port, protocol, family in sorted(ports)
        if family in held
    ]


def leading(facts: Facts, pod: PortLocalPod, port: int, protocol: str) -> list[str]:
    """namespace/name of the Services by which this port of the Pod has one of the Node, sorted; `protocol` is TCP, UDP or SCTP."""
    services = (service for service in _services(facts, pod) if (port, protocol) in _numbers(service, pod))
    return sorted(service.key for service in services)


def _services(facts: Facts, pod: PortLocalPod) -> Iterator[PortLocalService]:
    labels = set(pod.labels)
    return (
        service
        for service in facts.by(PortLocalService, "namespace", pod.namespace)
        if set(service.selector) <= labels
    )


def _numbers(service: PortLocalService, pod: PortLocalPod) -> Iterator[tuple[int, str]]:
    """Target port and protocol of each of the Service's ports; a name is that of a port which the Pod declares."""
    for protocol, port in service.ports:
        if isinstance(port, int):
            yield port, protocol
        else:
            yield from ((port_of_pod.number, protocol) for port_of_pod in pod.ports if (port_of_pod.name, port_of_pod.protocol) == (port, protocol))  # fmt: skip


# units


def port_requests(facts: Facts, pod: PortLocalPod) -> Iterator[PortRequest]:
    """Yield one for each target that is not the Node's port already."""
    ips = {is_ipv6(ip): ip for ip in pod.ips}
    for target in targets(facts, pod):
        if not target.host_port:
            yield PortRequest(pod.key, pod.uid, ips[target.ipv6], target.port, target.protocol, target.ipv6)


def port_annotation(facts: Facts, pod: PortLocalPod) -> Iterator[PodAnnotation]:
    """Yield the required annotation of the Pod, if it differs; never before all of its requests have an answer."""
    facts.need(PortsDecided)
    node = facts.need(AgentNode, facts.need(ThisNode).name)
    ips = {is_ipv6(ip): ip for ip in (*node.ips, *node.external_ips)}
    mappings = []
    for target in targets(facts, pod):
        port = target.host_port
        if not port:
            port = facts.need(
                HeldPort, request_key(pod.key, target.port, target.protocol, ipv6=target.ipv6)
            ).node_port
        if port and target.ipv6 in ips:
            mappings.append(
                PortMapping(target.port, ips[target.ipv6], port, target.protocol, FAMILIES[target.ipv6])
            )
    wanted = sorted_mappings(mappings)
    if pod.mappings != wanted if wanted else pod.annotated:
        yield PodAnnotation(pod.namespace, pod.name, pod.uid, PORT_LOCAL, text_of(wanted))


def port_message(facts: Facts, request: PortRequest) -> Iterator[RecordPortMessage]:
    """Yield an Event about what the request did not get."""
    held = facts.need(HeldPort, request.key)
    if held.message:
        namespace, _, name = request.pod.partition("/")
        yield RecordPortMessage(
            request.key, held, namespace=namespace, pod=name, uid=request.uid, message=held.message,
            lacks=not held.node_port,
        )  # fmt: skip
