"""How a Pod is told to agents in each kind of group.

parity: pkg/controller/egress/controller.go syncEgress, pkg/controller/networkpolicy podToGroupMember
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from antrea.apis.controlplane import GroupMember, NamedPort, PodReference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.facts.cluster import Pod


def egress_member(pod: Pod) -> GroupMember | None:
    """None for Pods in their Node's own network, whose packets OVS does not see, and for those that are nowhere yet."""
    if pod.host_network or not pod.node:
        return None
    return GroupMember(pod=PodReference(name=pod.name, namespace=pod.namespace))


def applied_member(pod: Pod) -> GroupMember | None:
    """As `egress_member`, with the ports that rules may name."""
    if pod.host_network or not pod.node:
        return None
    return GroupMember(pod=PodReference(name=pod.name, namespace=pod.namespace), ports=_ports(pod))


def address_member(pod: Pod) -> GroupMember | None:
    """None for Pods without an address of their own."""
    if pod.host_network or not pod.ips:
        return None
    reference = PodReference(name=pod.name, namespace=pod.namespace)
    return GroupMember(pod=reference, ips=tuple(packed(ip) for ip in pod.ips), ports=_ports(pod))


def _ports(pod: Pod) -> tuple[NamedPort, ...]:
    return tuple(NamedPort(port=number, name=name, protocol=protocol) for name, number, protocol in pod.ports)


def packed(text: str) -> bytes:
    """An address in 16 bytes, also one of IPv4. Raises ValueError."""
    found = ipaddress.ip_address(text)
    return found.packed if found.version == 6 else bytes(10) + b"\xff\xff" + found.packed


MEMBERS: Mapping[str, Callable[[Pod], GroupMember | None]] = {
    "addressgroups": address_member,
    "appliedtogroups": applied_member,
    "egressgroups": egress_member,
}
"""By the plural of the group's kind; None: the Pod does not count there."""
