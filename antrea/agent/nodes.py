"""What Node and Pod objects mean to this agent, as facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.agent.bootstrap import internal_ips, one_per_family
from antrea.apis.annotation import TRANSPORT_ADDRESSES
from antrea.apis.core import Node, Pod
from antrea.errors import Refused, Unavailable
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.pod import LocalPod
from antrea.outside import klog
from antrea.outside.kube_feed import KindFeed

if TYPE_CHECKING:
    from antrea.outside.kube import Kube

log = klog.logger(__name__)


async def own_node(kube: Kube, name: str) -> Node:
    """The Node this agent runs on. Raises Unavailable if the API server does not know it (yet) or is away."""
    try:
        node = await kube.get(f"/api/v1/nodes/{name}", Node)
    except Refused as no:
        raise Unavailable(f"Node {name}: {no.why}") from no
    if node is None:
        raise Unavailable(f"Node {name} in the API (NODE_NAME has to be the name that kubelet registers)")
    return node


def peer_feed(kube: Kube, this: str) -> KindFeed[Node]:
    """Feed of PeerNode: every other Node that can be reached."""

    def row(node: Node) -> PeerNode | None:
        cidrs, ips = one_per_family(node.spec.pod_cidrs), internal_ips(node)
        if node.metadata.name == this or not cidrs or not ips:
            return None
        ends = node.metadata.annotations.get(TRANSPORT_ADDRESSES, "")
        transport = tuple(end.strip() for end in ends.split(",") if end.strip())
        return PeerNode(node.metadata.name, cidrs, ips, transport or ips)

    return KindFeed(kube, "/api/v1/nodes", Node, fact=PeerNode, row=row)


def this_feed(kube: Kube, prepared: ThisNode) -> KindFeed[Node]:
    """Feed of ThisNode: what the API says of it may change, what bootstrap found stays.

    A Node object that was deleted and made anew may come back with another Pod CIDR: the gateway and new Pods follow it.
    """

    def row(node: Node) -> ThisNode:
        cidrs = one_per_family(node.spec.pod_cidrs) or prepared.pod_cidrs
        if cidrs != prepared.pod_cidrs:
            log.warning(
                "The Pod CIDR of this Node is another than at start", now=cidrs, before=prepared.pod_cidrs
            )
        return msgspec.structs.replace(prepared, pod_cidrs=cidrs)

    return KindFeed(
        kube,
        "/api/v1/nodes",
        Node,
        fact=ThisNode,
        row=row,
        query={"fieldSelector": f"metadata.name={prepared.name}"},
    )


def pod_feed(kube: Kube, this: str) -> KindFeed[Pod]:
    """Feed of LocalPod: the Pods of this Node that have a network of their own."""

    def row(pod: Pod) -> LocalPod | None:
        return None if pod.spec.host_network else LocalPod(pod.metadata.namespace, pod.metadata.name)

    return KindFeed(
        kube, "/api/v1/pods", Pod, fact=LocalPod, row=row, query={"fieldSelector": f"spec.nodeName={this}"}
    )
