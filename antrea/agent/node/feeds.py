"""Facts about this Node and its Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from antrea.apis.core import Node, Pod
from antrea.errors import Refused, Unavailable
from antrea.facts.family import one_per_family
from antrea.facts.node import ThisNode
from antrea.facts.pod import LocalPod
from antrea.features.framework.admission import OF_THIS_NODE, Watched
from antrea.features.framework.agent_feature import Families
from antrea.outside.kube.answer import Drop, Listed, Put
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the mirror of a static Pod: the UID that kubelet gave it."""


async def own_node(kube: Kube, name: str) -> Node:
    """Read the Node this agent runs on. Raises Unavailable if the API server does not know it (yet) or is away."""
    try:
        node = await kube.get(f"/api/v1/nodes/{name}", Node)
    except Refused as error:
        raise Unavailable(f"Node {name}: {error.why}") from error
    if node is None:
        raise Unavailable(f"Node {name} in the API (NODE_NAME has to be the name that kubelet registers)")
    return node


class NodeListener(Protocol):
    """Receiver of changes of this Node's object that need more than new facts."""

    def moved(self, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """Handle a change of the Pod CIDRs."""

    def made_anew(self) -> None:
        """Handle a recreated Node object, which lacks everything that this agent wrote on the previous one."""


class ThisNodeFeed:
    """Feed of ThisNode: fields from the API may change, those that bootstrap found stay.

    While there is no Node object, the network stays as it was. A recreated one may have other Pod CIDRs: gateway, flows and new
    Pods follow them, since the old ones will soon belong to another Node. Other families would need other tables, and tables
    are numbered at start: then `run` raises Unavailable, so that the agent restarts.
    """

    def __init__(self, kube: Kube, prepared: ThisNode, news: NodeListener) -> None:
        self._kube = kube
        self._known = prepared
        self._news = news
        self._uid = ""
        self._trouble = ""

    async def run(self, facts: Facts) -> None:
        """List, then watch, until cancelled. While the watch is interrupted the row stays and counts as not synced."""

        def troubled(why: str) -> None:
            if why and not self._trouble:
                facts.lost(ThisNode)
            elif self._trouble and not why:
                facts.synced(ThisNode)
            self._trouble = why

        query = {"fieldSelector": f"metadata.name={self._known.name}"}
        async for change in self._kube.watch("/api/v1/nodes", Node, query, trouble=troubled):
            if isinstance(change, Drop):
                log.warning("The Node object of this Node was deleted; its network stays unchanged")
            for node in change.objects if isinstance(change, Listed) else ():
                self._apply(facts, node)
            if isinstance(change, Put):
                self._apply(facts, change.object)
            elif isinstance(change, Listed):
                facts.synced(ThisNode)

    def _apply(self, facts: Facts, node: Node) -> None:
        before, now = self._known.pod_cidrs, one_per_family(node.spec.pod_cidrs)
        renewed, self._uid = self._uid not in ("", node.metadata.uid), node.metadata.uid
        if renewed:
            self._news.made_anew()
        if not now or now == before:
            return
        if Families.of(now) != Families.of(before):
            raise Unavailable(
                f"network for podCIDR {', '.join(now)}: it was {', '.join(before)}, and another IP family needs a new start"
            )
        self._known = msgspec.structs.replace(self._known, pod_cidrs=now)
        facts.put(self._known)
        self._news.moved(before, now)


def local_pod(pod: Pod) -> LocalPod | None:
    """Make the row of a Pod of this Node; None for a Pod in the Node's network."""
    meta = pod.metadata
    uid = meta.annotations.get(MIRROR, meta.uid)
    if pod.spec.host_network:
        return None
    return LocalPod(meta.namespace, meta.name, uid, int(meta.resource_version or 0))


LOCAL_PODS = Watched("/api/v1/pods", Pod, LocalPod, local_pod, field_selector=OF_THIS_NODE)
