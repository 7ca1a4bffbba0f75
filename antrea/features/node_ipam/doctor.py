"""Findings of `antctl doctor`: Nodes without Pod CIDRs, with those of another Node, or with those of another allocator.

The controller reports them as Events of Nodes, which the API server keeps for an hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.features.framework.doctor import ObjectCheck, ObjectFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPAIRS = {
    "CIDRNotAvailable": "kubectl -n kube-system edit configmap antrea-config  # extend nodeIPAM.clusterCIDRs, or remove Nodes",
    "CIDRAssignmentFailed": "kubectl -n kube-system logs deployment/antrea-controller",
    "PodCIDRShared": "kubectl drain {node} --ignore-daemonsets && kubectl delete node {node}  # then restart its kubelet",
    "SecondPodCIDRAllocator": "ps -C kube-controller-manager -o args  # on the control plane: set --allocate-node-cidrs=false",
}
"""Commands by the reason of an Event."""


def cidr_findings(item: Mapping[str, Any]) -> Iterator[ObjectFinding]:
    """Yield the fault that an Event of a Node names."""
    reason, node = item.get("reason", ""), item.get("involvedObject", {}).get("name", "")
    if reason in REPAIRS:
        at = item.get("lastTimestamp") or "unknown time"
        yield ObjectFinding(
            "error", f"{item.get('message', '')} (reported at {at})", REPAIRS[reason].format(node=node)
        )


OBJECT_CHECKS = (
    ObjectCheck(
        "pod-cidrs",
        "/api/v1/namespaces/default/events",
        "Event",
        "events",
        cidr_findings,
        {"fieldSelector": "involvedObject.kind=Node,type=Warning"},
    ),
)
