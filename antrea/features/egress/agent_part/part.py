"""Effects of Egress IPs: announcements, probes, handovers, and their Events."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from antrea.apis.core import ObjectReference
from antrea.errors import Unavailable
from antrea.facts.egress import AssignedAddress, Egress, EgressOwner, MissingAddress
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.address import AnnounceAddress, RecordAssigned
from antrea.features.egress.agent.address_report import ReportMissing, why_missing
from antrea.features.egress.agent.duplicate_address import RecordConflict
from antrea.features.egress.agent.gateway_reachability import RecordSilentGateway
from antrea.features.egress.agent.handover import ConfirmAnnounced, RecordUnassigned
from antrea.features.egress.agent.handover import ReleaseAddress as Release
from antrea.features.egress.agent.last_candidate import RecordLastCandidate
from antrea.features.egress.agent.status import RecordAssignmentFailed
from antrea.features.egress.agent.takeover_event import RecordTakeover
from antrea.features.egress.agent.what_if import what_if
from antrea.features.egress.agent_part.connection_copier import ConnectionCopier, copy_metrics
from antrea.features.egress.agent_part.gateway_prober import GatewayFeed
from antrea.features.egress.agent_part.graceful_handover import (
    TIMED_KINDS,
    GracefulHandover,
    takeover_message,
)
from antrea.features.egress.what_if_query import PATH
from antrea.features.external_ip_pool.link import DEVICE, PREFIX
from antrea.features.framework.agent_part import Part
from antrea.features.framework.change_times import ChangeTimes
from antrea.features.membership.agent_part.part import MembershipPart
from antrea.host.pod_sysctl import PodSysctl
from antrea.outside.log import klog
from antrea.outside.neighbour.announcement import NodeAnnouncer
from antrea.outside.netlink.pod_sysctl_sink import PodSysctlSink
from antrea.outside.ovsdb.bfd_feed import BfdFeed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.engine import Act, Facts, Feed, Sink
    from antrea.facts.fact import Fact
    from antrea.features.framework.agent_part import AgentContext, Connected, Handler, Route

log = klog.logger(__name__)
GRACE_SECONDS: Final = 2.0
"""Seconds that the controller may take to allocate an address, and a user to move one."""
SLOW_SECONDS: Final = 10.0
"""Seconds that the last holder may take to appear in gossip (docs/membership.md)."""
POD_SETTINGS: Final = "pod-settings"
"""File of what is set in the network namespaces of Pods."""
LOOK_SECONDS: Final = 30.0
"""Seconds between checks whether a row may be removed."""


class MissingAddresses:
    """Handler of ReportMissing, which writes MissingAddress."""

    def __init__(self, facts: Facts, grace: float = GRACE_SECONDS) -> None:
        self._facts, self._grace = facts, grace

    async def wait(self, act: ReportMissing) -> None:
        """Handle the act without waiting: a pool that is deleted may have many addresses."""
        seconds = max(SLOW_SECONDS, self._grace) if act.slow else self._grace
        asyncio.get_running_loop().call_later(seconds, self._report, MissingAddress(act.egress, act.why))

    def _report(self, row: MissingAddress) -> None:
        egress, node = self._facts.get(Egress, row.egress), self._facts.get(ThisNode)
        standing = self._facts.get(MissingAddress, row.egress)
        if egress and node and why_missing(self._facts, egress, node) == row.why:
            if standing != row:
                self._facts.put(row)
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._report, row)
        elif standing == row:
            self._facts.drop(MissingAddress, row.egress)


class EgressPart(Part):
    """Part of Egress: its acts, and feeds of living members, unused addresses and answering gateways."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._facts, self._node = agent, agent.facts, agent.node
        self._changes = ChangeTimes(agent.facts, TIMED_KINDS, clock=time.monotonic)
        self._handover = GracefulHandover(agent.facts, agent.kube, agent.config, agent.node)
        self.has_handed_over = asyncio.Event()
        """Set once other Nodes have what this one held, before this process ends for good."""
        self._announcer = NodeAnnouncer(self.holds)
        self._missing = MissingAddresses(agent.facts)
        self._pod_sysctls = PodSysctlSink(agent.run_dir / POD_SETTINGS)
        self._copier: ConnectionCopier | None = None
        self._owners: dict[str, str] = {}
        """Node by the key of EgressOwner."""
        self._reported: dict[str, set[tuple[str, str]]] = {}
        """Moves with an Event, by the key of EgressOwner, until another Node is to hold the address."""
        agent.facts.observe(EgressOwner, self._placed)

    def acts(self) -> Mapping[type[Act], Handler]:
        return {
            AnnounceAddress: self._announcer.announce,
            RecordAssigned: self._assigned,
            RecordUnassigned: self._unassigned,
            RecordTakeover: self._took_over,
            RecordConflict: self._conflict,
            RecordAssignmentFailed: self._failed,
            ReportMissing: self._missing.wait,
            RecordSilentGateway: self._gateway_silent,
            RecordLastCandidate: self._alone,
            Release: self._handover.part,
            ConfirmAnnounced: self._handover.receive,
        }

    essential_feeds = frozenset({"BFD"})

    def sinks(self) -> Mapping[type, Sink]:
        return {PodSysctl: self._pod_sysctls}

    def feeds(self, connected: Connected) -> Mapping[str, Feed]:
        """Return the feeds; from now on the handover has members to notify."""
        gossip = self._agent.part(MembershipPart).gossip
        if gossip is None:
            raise Unavailable("gossip, which Egress needs, is off")
        self._handover.gossip = gossip
        self._copier = ConnectionCopier(gossip)
        return {
            "BFD": BfdFeed(connected.db, gossip.report_bfd),
            "gateways of VLANs": GatewayFeed(),
            "copies of connections": self._copier,
        }

    def routes(self) -> Mapping[str, Route]:
        return {PATH: lambda query: what_if(self._facts, query)}

    def metrics(self) -> str:
        return copy_metrics(self._copier.counts) if self._copier else ""

    def waits_for(self, hands_over: Callable[[], bool]) -> None:
        """Wait for another feature as well before this agent ends for good, as long as this is true."""
        self._handover.others.append(hands_over)

    def owns(self, interface: str) -> bool:
        return interface == DEVICE or interface.startswith(PREFIX)

    async def farewell(self) -> None:
        try:
            await self._handover.farewell()
        finally:
            self.has_handed_over.set()

    async def close(self) -> None:
        """End what is being announced, and the thread for settings of Pods."""
        await self._announcer.close()
        self._pod_sysctls.close()

    def holds(self, ip: str) -> bool:
        """The address is here, and no other Node takes it."""
        wanted = (self._facts.get(EgressOwner, row.key) for row in self._facts.by(Egress, "ip", ip))
        ours = any(row and row.node == self._node for row in wanted)
        return ours and self._facts.get(LocalAddress, ip) is not None

    async def _assigned(self, act: RecordAssigned) -> None:
        self._facts.put(AssignedAddress(act.row, act.egress, act.uid, act.ip))
        if not act.recorded:
            said = f"Assigned Egress {act.egress} with IP {act.ip} on Node {act.node}"
            self._tell_of(act, "IPAssigned", said)

    def _placed(self, _: type[Fact], key: str) -> None:
        """A move ends when the address is placed elsewhere, not when a status or an interface changes back for a moment."""
        row = self._facts.get(EgressOwner, key)
        if row is None or self._owners.get(key) != row.node:
            self._reported.pop(key, None)
        if row is None:
            self._owners.pop(key, None)
        else:
            self._owners[key] = row.node

    def _is_new(self, key: str, reason: str, move: str) -> bool:
        """Whether there is no Event yet of this move of the address of this Egress row."""
        reported = self._reported.setdefault(key, set())
        is_new = (reason, move) not in reported
        reported.add((reason, move))
        return is_new

    async def _unassigned(self, act: RecordUnassigned) -> None:
        """Record that the Node released an address; a deleted Egress has no Events any more."""
        self._facts.drop(AssignedAddress, act.address)
        if not self._is_new(act.address.rpartition(" ")[0], "IPUnassigned", act.ip):
            return
        if any(row.uid == act.uid for row in self._facts.all(Egress)):
            said = f"Unassigned Egress {act.egress} with IP {act.ip} from Node {act.node}"
            self._tell_of(act, "IPUnassigned", said)

    async def _took_over(self, act: RecordTakeover) -> None:
        if not self._is_new(str(act.key), "EgressTakenOver", f"{act.ip} {act.before}"):
            return
        log.info("Took over an Egress IP", egress=act.egress, ip=act.ip, before=act.before, why=act.why.why)
        self._tell_of(act, "EgressTakenOver", takeover_message(act, self._changes.times))

    async def _conflict(self, act: RecordConflict) -> None:
        self._tell_of(act, "EgressIPConflict", act.message, warning=True)

    async def _gateway_silent(self, act: RecordSilentGateway) -> None:
        self._agent.record("PoolGatewaySilent", act.message, warning=True)

    async def _alone(self, act: RecordLastCandidate) -> None:
        self._agent.record("LastEgressNode", act.message, warning=True)

    async def _failed(self, act: RecordAssignmentFailed) -> None:
        self._tell_of(act, "AssignmentError", act.message, warning=True)

    def _tell_of(
        self,
        act: RecordAssigned | RecordUnassigned | RecordTakeover | RecordConflict | RecordAssignmentFailed,
        reason: str,
        message: str,
        *,
        warning: bool = False,
    ) -> None:
        about = ObjectReference(
            api_version="crd.antrea.io/v1beta1", kind="Egress", name=act.egress, uid=act.uid
        )
        self._agent.record(reason, message, warning=warning, about=about)


PART = EgressPart
