"""What a Node does for Egress IPs beside flows and rules: announces them, asks whose they are, hands them over, and tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.failback import IdleFeed
from antrea.agent.gateways import GatewayFeed
from antrea.agent.handover import Handover, sentence
from antrea.agent.probing import Probing
from antrea.apis.core import ObjectReference
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.node import LocalAddress
from antrea.features.egress.address import Announce, Assigned
from antrea.features.egress.duplicate import Conflict, Probe
from antrea.features.egress.handover import Part, Receive, Unassigned
from antrea.features.egress.takeover import TookOver
from antrea.outside import klog
from antrea.outside.announcement import NodeAnnouncer
from antrea.outside.ovsdb_bfd import BfdFeed
from antrea.outside.voice import TRIES, Voice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from antrea.agent.membership import Membership
    from antrea.config.agent import AgentConfig
    from antrea.engine import Act, Facts, Feed
    from antrea.outside.kube import Kube
    from antrea.outside.ovsdb import Ovsdb

    Doing = Callable[[Any], Awaitable[None]]
    Begin = Callable[[Coroutine[Any, Any, None], str], None]

log = klog.logger(__name__)


class EgressNode:
    """Does the acts of Egress, and feeds who lives, whose the addresses are, which are idle and which gateways answer."""

    def __init__(self, facts: Facts, kube: Kube, config: AgentConfig, node: str, begin: Begin) -> None:
        """`node` is the name of this one; `begin` goes on with what takes its time."""
        self._facts, self._kube, self._node = facts, kube, node
        self._begin = begin
        self.handover = Handover(facts, kube, config, node)
        self._probing, self._announcer = Probing(node), NodeAnnouncer(self.holds)

    async def close(self) -> None:
        """End what is being announced."""
        await self._announcer.close()

    def acts(self) -> dict[type[Act], Doing]:
        """Who does which."""
        return {
            Announce: self._announcer.announce,
            Assigned: self._assigned,
            Unassigned: self._unassigned,
            TookOver: self._took_over,
            Probe: lambda act: self._probing.probe(self._facts, act),
            Conflict: self._conflict,
            Part: self.handover.part,
            Receive: self.handover.receive,
        }

    def feeds(self, db: Ovsdb, membership: Membership) -> dict[str, Feed]:
        """By name; from now on there is somebody to say goodbye to."""
        self.handover.gossip = membership.gossip
        return {
            "members": membership,
            "BFD": BfdFeed(db, membership.gossip.saw),
            "idle Egress IPs": IdleFeed(self._node),
            "gateways of VLANs": GatewayFeed(),
            "neighbours of Egress IPs": self._probing,
        }

    def holds(self, ip: str) -> bool:
        """The address is here, and no other Node takes it."""
        wanted = (self._facts.get(EgressOwner, row.key) for row in self._facts.by(Egress, "ip", ip))
        ours = any(row and row.node == self._node for row in wanted)
        return ours and self._facts.get(LocalAddress, ip) is not None

    async def _assigned(self, act: Assigned) -> None:
        self._tell_of(act, "IPAssigned", f"Assigned Egress {act.egress} with IP {act.ip} on Node {act.node}")

    async def _unassigned(self, act: Unassigned) -> None:
        said = f"Unassigned Egress {act.egress} with IP {act.ip} from Node {act.node}"
        self._tell_of(act, "IPUnassigned", said)

    async def _took_over(self, act: TookOver) -> None:
        log.info("Took an Egress IP over", egress=act.egress, ip=act.ip, before=act.before, why=act.why.why)
        self._tell_of(act, "EgressTakenOver", sentence(act, self._facts.timed))

    async def _conflict(self, act: Conflict) -> None:
        self._tell_of(act, "EgressIPConflict", act.message, warning=True)

    def _tell_of(
        self,
        act: Assigned | Unassigned | TookOver | Conflict,
        reason: str,
        message: str,
        *,
        warning: bool = False,
    ) -> None:
        about = ObjectReference(
            api_version="crd.antrea.io/v1beta1", kind="Egress", name=act.egress, uid=act.uid
        )
        voice = Voice(about, "antrea-agent", act.node)
        told = voice.tell(self._kube, reason, message, warning=warning, tries=TRIES)
        self._begin(told, "Event of an Egress")
