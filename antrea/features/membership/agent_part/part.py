"""Effects of membership: gossip with other agents under the keys of the cluster, and what is shown of it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.apis.memberlist import KEYS, SECRET, MemberAnswer, parse_keys
from antrea.decoding import decode_base64, decode_text
from antrea.errors import Invalid, Unavailable
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.features.framework.agent_part import Part
from antrea.features.membership.agent import is_needed
from antrea.outside.gossip.feed import GossipFeed
from antrea.outside.kube.answer import Listed, Put
from antrea.outside.kube.environment import own_namespace
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.engine import Facts, Feed
    from antrea.features.framework.agent_part import AgentContext, Connected, Route
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

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
    "Number of packets dropped because they were not valid gossip of another Antrea Agent: forged, replayed or malformed.",
)
REASON: Final = "MajorityLost"
LOOK_SECONDS: Final = 5.0
LOOKS: Final = 4
"""Number of consecutive checks: agents that start together find each other within seconds."""


async def report_majority(agent: AgentContext) -> None:
    """Record an Event whenever the majority is lost while there are pools; runs until cancelled."""
    looks = 0
    while True:
        quorum = agent.facts.get(Quorum)
        lost = quorum is not None and not quorum.has and bool(agent.facts.all(PoolSelector))
        looks = looks + 1 if lost else 0
        if quorum and looks == LOOKS:
            agent.record(
                REASON,
                f"the agent finds {quorum.alive} of {quorum.of} agents, itself included, which is not a majority: this Node holds no"
                f" Egress IP of a pool and answers for no external IP of a Service; UDP and TCP port {agent.config.cluster_port}"
                " have to be open between Nodes",
                warning=True,
            )
        await asyncio.sleep(LOOK_SECONDS)


class Secret(CoreStruct, frozen=True):
    """Secret with base64 values."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class MembershipPart(Part):
    """Gossip with the other agents, and what is shown of it."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._membership: MembershipFeed | None = None

    @property
    def gossip(self) -> GossipFeed | None:
        """The gossip; None if there is none yet, or nothing needs it."""
        return self._membership.gossip if self._membership else None

    essential_feeds = frozenset({"members"})

    def feeds(self, connected: Connected) -> Mapping[str, Feed]:
        agent = self._agent
        if not is_needed(agent.gates):
            return {}
        gossip = GossipFeed(agent.node, connected.node.transport_ips[0], agent.config.cluster_port)
        self._membership = MembershipFeed(agent.kube, own_namespace(), gossip)
        return {"members": self._membership}

    async def run(self) -> None:
        await report_majority(self._agent)

    def routes(self) -> Mapping[str, Route]:
        return {"/memberlist": lambda _: memberlist(self._agent.facts, self._membership)}

    def metrics(self) -> str:
        return self._membership.metrics(self._agent.facts) if self._membership else ""

    def bundle(self) -> Mapping[str, Any]:
        """Return the member list, if there is one."""
        with contextlib.suppress(Unavailable):
            return {"memberlist": memberlist(self._agent.facts, self._membership)}
        return {}


class MembershipFeed:
    """Feed of Member and Quorum, by gossip under the keys of the cluster's Secret."""

    def __init__(self, kube: Kube, namespace: str, gossip: GossipFeed) -> None:
        self._kube = kube
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self.gossip = gossip

    async def run(self, facts: Facts) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.gossip.run(facts), name="gossip")
            tasks.create_task(
                follow_keys(self._kube, self._secrets, self.gossip.keys), name="gossip key watch"
            )

    def metrics(self, facts: Facts) -> str:
        """Render the metrics in Prometheus' format."""
        members = facts.all(GossipMember)
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
    """Follow the Secret until cancelled. Malformed keys are not used; when the Secret is deleted, the last keys remain in use,
    as on other Nodes.
    """
    query = {"fieldSelector": f"metadata.name={SECRET}"}
    used: list[bytes] = []
    async for change in kube.watch(secrets, Secret, query):
        objects = (
            change.objects
            if isinstance(change, Listed)
            else (change.object,)
            if isinstance(change, Put)
            else ()
        )
        if isinstance(change, Listed) and not objects and not used:
            log.info("Waiting for antrea-controller to create the gossip key", secret=SECRET)
        for secret in objects:
            try:
                keys = parse_keys(decode_text(decode_base64(secret.data.get(KEYS, ""), KEYS), KEYS, "ascii"))
            except (ValueError, Invalid) as error:
                log.error("The Secret holds no usable gossip keys", secret=SECRET, err=str(error))
                continue
            if keys != used:
                log.info("Loaded gossip keys", secret=SECRET, keys=len(keys))
                used = keys
                use(keys)


def memberlist(facts: Facts, membership: MembershipFeed | None) -> list[MemberAnswer]:
    """Answer /memberlist. Raises Unavailable if the gates leave it off.

    parity: pkg/agent/apiserver/handlers/memberlist/handler.go
    """
    if membership is None:
        raise Unavailable("memberlist is not enabled")
    this = facts.get(ThisNode)
    alive = {row.node for row in facts.all(GossipMember) if row.alive} | {this.name if this else ""}
    return [
        MemberAnswer(node.name, node.ips[0], "Alive" if node.name in alive else "Dead")
        for node in facts.all(AgentNode)
        if node.gossips
    ]


PART = MembershipPart
