"""Members of each kind of group for a Pod, an ExternalEntity or a Node, as sent to agents.

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

BYTES = {str(number): bytes((number,)) for number in range(256)}
MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of IPv4 addresses in 16 bytes."""
ADDRESS, APPLIED, EGRESS = "addressgroups", "appliedtogroups", "egressgroups"
PORTS = "namedports"
"""Groups whose named ports are collected (`GroupPorts`); they have no members and agents do not get them."""


def egress_member(pod: Pod) -> GroupMember | None:
    """Make the member of an Egress group; None for Pods in the host network, whose packets OVS does not see, and without a
    Node.
    """
    if pod.host_network or not pod.node:
        return None
    return GroupMember(pod=PodReference(name=pod.name, namespace=pod.namespace))


def applied_member(pod: Pod) -> GroupMember | None:
    """Make the member of an AppliedToGroup, with the ports that rules may name; None as for `egress_member`."""
    if pod.host_network or not pod.node:
        return None
    reference = PodReference(name=pod.name, namespace=pod.namespace)
    return GroupMember(pod=reference, ports=_ports(pod)) if pod.ports else GroupMember(pod=reference)


def address_member(pod: Pod) -> GroupMember | None:
    """Make the member of an AddressGroup; None for Pods without an address of their own."""
    if pod.host_network or not pod.ips:
        return None
    reference = PodReference(name=pod.name, namespace=pod.namespace)
    ips = _packed(pod.ips)
    return (
        GroupMember(pod=reference, ips=ips, ports=_ports(pod))
        if pod.ports
        else GroupMember(pod=reference, ips=ips)
    )


def unpublished_member(_: Pod) -> None:
    """Return None: the group is not published."""


def entity_member(entity: Entity, *, addresses: bool) -> GroupMember:
    """Make the member of an ExternalEntity."""
    return GroupMember(
        external_entity=ExternalEntityReference(name=entity.name, namespace=entity.namespace),
        ips=_packed(entity.ips) if addresses else (),
        ports=_ports(entity),
    )


def node_member(node: ClusterNode, *, addresses: bool) -> GroupMember:
    """Make the member of a Node."""
    return GroupMember(node=NodeReference(name=node.name), ips=_packed(node.ips) if addresses else ())


def service_member(namespace: str, name: str) -> GroupMember:
    """Make the member of a Service."""
    return GroupMember(service=ServiceReference(name=name, namespace=namespace))


def _ports(labelled: Pod | Entity) -> tuple[NamedPort, ...]:
    return tuple(
        NamedPort(port=number, name=name, protocol=protocol) for name, number, protocol in labelled.ports
    )


def _packed(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Pack the valid addresses: a member is in its groups also if one of them is invalid."""
    try:
        return tuple([packed(text) for text in texts])
    except ValueError:
        return tuple(_readable(texts))


def _readable(texts: Sequence[str]) -> Iterator[bytes]:
    for text in texts:
        with contextlib.suppress(ValueError):
            yield packed(text)


def packed(text: str) -> bytes:
    """Pack an address into 16 bytes, also one of IPv4. Raises ValueError."""
    try:
        a, b, c, d = text.split(".")
        return b"".join((MAPPED, BYTES[a], BYTES[b], BYTES[c], BYTES[d]))
    except (ValueError, KeyError):
        address = ipaddress.ip_address(text)
    return address.packed if address.version == 6 else MAPPED + address.packed


MEMBERS: Mapping[str, Callable[[Pod], GroupMember | None]] = {
    ADDRESS: address_member,
    APPLIED: applied_member,
    EGRESS: egress_member,
    PORTS: unpublished_member,
}
"""Functions that make the member, by the plural of the group's kind; they return None if the Pod does not count there."""
