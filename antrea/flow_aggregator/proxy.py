"""Mode Proxy: each record is sent on at once, with the other end's Pod and whose record it was.

parity: pkg/flowaggregator/flowaggregator.go proxyRecord, fillK8sMetadata
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.flow import FlowRecord, FlowType

if TYPE_CHECKING:
    from antrea.flow_aggregator.pod_addresses import PodAddresses

INGRESS, EGRESS, UNKNOWN = 0, 1, 0xFF
"""flowDirection as its Node sees it; unknown where both ends are on that Node."""
ENDS: Final = ("source", "destination")


def complete(record: FlowRecord, pods: PodAddresses) -> None:
    """Fill in what the Node of the record did not have."""
    record.flow_direction = direction(record)
    add_names(record, pods)


def add_names(record: FlowRecord, pods: PodAddresses) -> None:
    """Fill in the Pod of an end on another Node than that of the record."""
    if record.flow_type != FlowType.INTER_NODE:
        return  # of all others the one Node knows what there is
    for end in ENDS:
        pod = pods.get(getattr(record, f"{end}_ip"))
        if pod and not getattr(record, f"{end}_pod_name"):
            setattr(record, f"{end}_pod_namespace", pod.namespace)
            setattr(record, f"{end}_pod_name", pod.name)
            setattr(record, f"{end}_pod_uid", pod.uid)
            setattr(record, f"{end}_node_name", pod.node)


def add_labels(record: FlowRecord, pods: PodAddresses) -> None:
    """Fill in the labels of both Pods, as they are now."""
    for end in ENDS:
        if getattr(record, f"{end}_pod_name") and (pod := pods.get(getattr(record, f"{end}_ip"))):
            setattr(record, f"{end}_pod_labels", pod.labels)


def direction(record: FlowRecord) -> int:
    """Return the direction of a record as its Node made it."""
    source, destination = bool(record.source_pod_name), bool(record.destination_pod_name)
    match record.flow_type:
        case FlowType.INTER_NODE if source != destination:
            return EGRESS if source else INGRESS
        case FlowType.TO_EXTERNAL if source:
            return EGRESS
        case FlowType.FROM_EXTERNAL if destination:
            return INGRESS
    return UNKNOWN
