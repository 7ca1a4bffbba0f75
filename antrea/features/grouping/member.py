"""How a Pod, an ExternalEntity or a Node is sent to agents in each kind of group.

parity: pkg/controller/egress/controller.go syncEgress, pkg/controller/networkpolicy podToGroupMember and its like
"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING

from antrea.apis.controlplane import (
    ExternalEntityReference,
    GroupMember,
    NamedPort,
    NodeReference,
    PodReference,
    ServiceReference,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from antrea.facts.cluster import ClusterNode, Entity, Pod

OCTETS = {str(number): bytes((number,)) for number in range(256)}
MAPPED = bytes(10) + b"\xff\xff"
"""What IPv4 addresses begin with in 16 bytes."""
ADDRESS, APPLIED, EGRESS = "addressgroups", "appliedtogroups", "egressgroups"
PORTS = "namedports"
"""Groups whose named ports are collected (`GroupPorts`); they have no members and agents do not get them."""


def egress_member(pod: Pod) -> GroupMember | None:
    """None for Pods in their Node's own network, whose packets OVS does not see, and for those that are nowhere yet."""
    if pod.host_network or not pod.node:
        return None
    return GroupMember(pod=PodReference(name=pod.name, namespace=pod.namespace))


def applied_member(pod: Pod) -> GroupMember | None:
    """As `egress_member`, with the ports that rules may name."""
    if pod.host_network or not pod.node:
        return None
    reference = PodReference(name=pod.name, namespace=pod.namespace)
    return GroupMember(pod=reference, ports=_ports(pod)) if pod.ports else GroupMember(pod=reference)


def address_member(pod: Pod) -> GroupMember | None:
    """None for Pods without an address of their own."""
    if pod.host_network or not pod.ips:
        return None
    reference = PodReference(name=pod.name, namespace=pod.namespace)
    ips = _packed(pod.ips)
    return (
        GroupMember(pod=reference, ips=ips, ports=_ports(pod))
        if pod.ports
        else GroupMember(pod=reference, ips=ips)
    )


def no_member(_: Pod) -> None:
    """None: the group is not published."""


def entity_member(entity: Entity, *, addresses: bool) -> GroupMember:
    """An ExternalEntity."""
    return GroupMember(
        external_entity=ExternalEntityReference(name=entity.name, namespace=entity.namespace),
        ips=_packed(entity.ips) if addresses else (),
        ports=_ports(entity),
    )


def node_member(node: ClusterNode, *, addresses: bool) -> GroupMember:
    """A Node."""
    return GroupMember(node=NodeReference(name=node.name), ips=_packed(node.ips) if addresses else ())


def service_member(namespace: str, name: str) -> GroupMember:
    """A Service."""
    return GroupMember(service=ServiceReference(name=name, namespace=namespace))


def _ports(found: Pod | Entity) -> tuple[NamedPort, ...]:
    return tuple(
        NamedPort(port=number, name=name, protocol=protocol) for name, number, protocol in found.ports
    )


def _packed(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Those that are addresses: a member is in its groups also where one of them cannot be read."""
    try:
        return tuple([packed(text) for text in texts])
    except ValueError:
        return tuple(_readable(texts))


def _readable(texts: Sequence[str]) -> Iterator[bytes]:
    for text in texts:
        with contextlib.suppress(ValueError):
            yield packed(text)


def packed(text: str) -> bytes:
    """An address in 16 bytes, also one of IPv4. Raises ValueError."""
    try:
        a, b, c, d = text.split(".")
        return b"".join((MAPPED, OCTETS[a], OCTETS[b], OCTETS[c], OCTETS[d]))
    except (ValueError, KeyError):
        found = ipaddress.ip_address(text)
    return found.packed if found.version == 6 else MAPPED + found.packed


MEMBERS: Mapping[str, Callable[[Pod], GroupMember | None]] = {
    ADDRESS: address_member,
    APPLIED: applied_member,
    EGRESS: egress_member,
    PORTS: no_member,
}
"""By the plural of the group's kind; None: the Pod does not count there."""
