"""How a Pod is told to agents in each kind of group.

parity: pkg/controller/egress/controller.go syncEgress, pkg/controller/networkpolicy podToGroupMember
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.controlplane import GroupMember, PodReference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.facts.cluster import Pod


def egress_member(pod: Pod) -> GroupMember | None:
    """None for Pods in their Node's own network, whose packets OVS does not see, and for those that are nowhere yet."""
    if pod.host_network or not pod.node:
        return None
    return GroupMember(pod=PodReference(name=pod.name, namespace=pod.namespace))


MEMBERS: Mapping[str, Callable[[Pod], GroupMember | None]] = {"egressgroups": egress_member}
"""By the plural of the group's kind; None: the Pod does not count there."""
