"""What the agent's assembly needs for membership: the feed of all Nodes, the keys of their gossip, and what is shown of it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from typing import TYPE_CHECKING

import msgspec

from antrea.agent.bootstrap import internal_ips
from antrea.apis.annotation import TRANSPORT_ADDRESSES
from antrea.apis.core import CoreStruct, Node, ObjectMeta
from antrea.apis.memberlist import KEYS, SECRET, MemberAnswer, parse_keys
from antrea.errors import Unavailable
from antrea.facts.family import one_per_family
from antrea.facts.member import ClusterNode, Member, Quorum
from antrea.facts.node import ThisNode
from antrea.features.external_ip_pool.address import canonical
from antrea.outside import klog
from antrea.outside.kube import Listed, Put
from antrea.outside.kube_feed import KindFeed
from antrea.outside.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts
    from antrea.outside.gossip.feed import GossipFeed
    from antrea.outside.kube import Kube

log = klog.logger(__name__)

OS, LINUX = "kubernetes.io/os", "linux"
MOST_EGRESS_IPS = "node.antrea.io/max-egress-ips"
_NUMBER = re.compile(r"[0-9]{1,9}")
ALIVE = Metric(
    "antrea_agent_member_count", "gauge", "ALPHA", "Number of Antrea Agents by whether they are alive."
)
QUORUM = Metric(
    "antrea_agent_member_quorum",
    "gauge",
    "ALPHA",
    "1 while this Antrea Agent is with the majority of all, else 0.",
)
CHANGES = Metric(
    "antrea_agent_member_change_count",
    "counter",
    "ALPHA",
    "Number of times that a member was found alive or dead.",
)
PACKETS = Metric(
    "antrea_agent_gossip_packet_count", "counter", "ALPHA", "Number of packets of the gossip between agents."
)
DROPPED = Metric(
    "antrea_agent_gossip_dropped_packet_count",
    "counter",
    "ALPHA",
    "Number of packets that were no gossip of another Antrea Agent: forged, replayed, garbled.",
)


class Secret(CoreStruct, frozen=True):
    """Values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


def cluster_node(node: Node) -> ClusterNode | None:
    """The row of a Node that has Pods' addresses and its own."""
    meta, ips, cidrs = node.metadata, internal_ips(node), one_per_family(node.spec.pod_cidrs)
    if not ips or not cidrs:
        return None
    said = meta.annotations.get(TRANSPORT_ADDRESSES, "").split(",")
    # a Node may write any text there; it goes into the flows of all others
    ends = tuple(filter(None, (canonical(end.strip()) for end in said)))
    most = meta.annotations.get(MOST_EGRESS_IPS, "")
    if most and not _NUMBER.fullmatch(most):
        log.warning("Annotation is no number", node=meta.name, annotation=MOST_EGRESS_IPS, value=most[:100])
    return ClusterNode(
        name=meta.name,
        ips=ips,
        transport_ips=ends or ips,
        labels=tuple(sorted(meta.labels.items())),
        most_egress_ips=int(most) if _NUMBER.fullmatch(most) else None,
        pod_cidrs=cidrs,
        gossips=meta.labels.get(OS, LINUX) == LINUX,
        cordoned=node.spec.unschedulable,
    )


def cluster_feed(kube: Kube) -> KindFeed[Node]:
    """Feed of ClusterNode."""
    return KindFeed(kube, "/api/v1/nodes", Node, fact=ClusterNode, row=cluster_node)


class Membership:
    """Feed of Member and Quorum, by gossip under the keys of the cluster's Secret."""

    def __init__(self, kube: Kube, namespace: str, gossip: GossipFeed) -> None:
        self._kube = kube
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self.gossip = gossip

    async def run(self, facts: Facts) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.gossip.run(facts), name="gossip")
            tasks.create_task(follow_keys(self._kube, self._secrets, self.gossip.keys), name="keys of gossip")

    def metrics(self, facts: Facts) -> str:
        """In Prometheus' format."""
        members = facts.all(Member)
        quorum = facts.get(Quorum) or Quorum(has=False, alive=1, of=1)
        text = ALIVE.text(
            [
                Sample(1 + sum(row.alive for row in members), {"alive": "true"}),
                Sample(quorum.of - quorum.alive, {"alive": "false"}),
            ]
        )
        text += QUORUM.text([Sample(int(quorum.has))])
        feed = self.gossip
        text += CHANGES.text([Sample(feed.joins, {"alive": "true"}), Sample(feed.deaths, {"alive": "false"})])
        if gossip := feed.gossip:
            text += PACKETS.text(
                [
                    Sample(gossip.sent, {"direction": "sent"}),
                    Sample(gossip.received, {"direction": "received"}),
                ]
            )
            dropped = sorted(gossip.machine.channels.dropped.items())
            text += DROPPED.text([Sample(count, {"reason": why}) for why, count in dropped])
        return text


async def follow_keys(kube: Kube, secrets: str, use: Callable[[list[bytes]], None]) -> None:
    """Until cancelled. What is no key is not used, and a Secret that goes leaves us those we have: others have them, too."""
    query = {"fieldSelector": f"metadata.name={SECRET}"}
    used: list[bytes] = []
    async for change in kube.watch(secrets, Secret, query):
        found = (
            change.objects
            if isinstance(change, Listed)
            else (change.object,)
            if isinstance(change, Put)
            else ()
        )
        if isinstance(change, Listed) and not found and not used:
            log.info("Waiting for the key of gossip, which antrea-controller makes", secret=SECRET)
        for secret in found:
            try:
                keys = parse_keys(base64.b64decode(secret.data.get(KEYS, ""), validate=True).decode("ascii"))
            except (ValueError, binascii.Error) as why:
                log.error("The keys of gossip are not usable", secret=SECRET, err=str(why))
                continue
            if keys != used:
                log.info("Keys of gossip", secret=SECRET, keys=len(keys))
                used = keys
                use(keys)


def memberlist(facts: Facts, membership: Membership | None) -> list[MemberAnswer]:
    """The answer of /memberlist. Raises Unavailable if the gates leave it off.

    parity: pkg/agent/apiserver/handlers/memberlist/handler.go
    """
    if membership is None:
        raise Unavailable("memberlist is not enabled")
    this = facts.get(ThisNode)
    alive = {row.node for row in facts.all(Member) if row.alive} | {this.name if this else ""}
    return [
        MemberAnswer(node.name, node.ips[0], "Alive" if node.name in alive else "Dead")
        for node in facts.all(ClusterNode)
        if node.gossips
    ]
