"""Effects of external IPs: neighbours are answered, moves are announced and reported, and the owner of each is shown."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.core import ObjectReference
from antrea.errors import Unavailable
from antrea.facts.external_ip import AnsweredAddress, ExternalIPOwner, PoolAddressNodes, nodes_key
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, Quorum, SilenceReport
from antrea.facts.service import Service
from antrea.features.egress.agent.takeover_event import Cause, cause
from antrea.features.egress.agent_part.part import EgressPart
from antrea.features.framework.agent_part import NotFound, Part
from antrea.features.framework.change_times import ChangeTimes
from antrea.features.service_external_ip.agent import (
    GATE,
    AnnounceExternalIP,
    RecordAnswered,
    RecordExternalIPConflict,
    RecordSubnetIgnored,
)
from antrea.features.service_external_ip.agent_part.answered_file import AnsweredFile
from antrea.features.service_external_ip.agent_part.claim_feed import ClaimFeed
from antrea.features.service_external_ip.agent_part.network_feed import NetworkFeed
from antrea.features.service_external_ip.agent_part.strict_arp import (
    CONDITION,
    report_strict_arp,
    strict_arp_missing,
)
from antrea.features.service_external_ip.failback import RecordFailbackWaits
from antrea.features.service_external_ip.network import RecordUnheard, unheard_texts
from antrea.features.service_external_ip.owner import pool_of
from antrea.features.service_external_ip.unanswered import RecordUnanswered
from antrea.host.carrier import RELAYED_MACS
from antrea.host.neighbour_response import NeighbourResponse
from antrea.outside.log import klog
from antrea.outside.neighbour.announcement import NodeAnnouncer
from antrea.outside.neighbour.responder import NeighbourResponder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Act, Feed, Sink
    from antrea.facts.fact import Fact
    from antrea.features.framework.agent_part import AgentContext, Connected, Handler, Query, Route
    from antrea.outside.http.handlers import Check

log = klog.logger(__name__)

TIMED_KINDS = (GossipMember, AgentNode, PoolSelector, PoolAddressNodes, Service, Quorum, SilenceReport)
"""Kinds whose changes move addresses: their times are kept."""

UNHEARD = "ExternalIPsUnheard"
"""Reason of Events of a Node, and its condition."""
UNANSWERED_SECONDS = 5.0
"""Seconds during which no Node answers for an address before there is an Event of it."""
GIVE_UP_SECONDS = 1.0
"""Seconds until the next Node has announced an address four times (antrea.outside.neighbour.announcement.PAUSES)."""


class ServiceExternalIPPart(Part):
    """Part that answers for the external IPs of this Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._facts, self._node = agent, agent.facts, agent.node
        self._responder = NeighbourResponder()
        self._announcer = NodeAnnouncer(self._responder.answers)
        self._changes = ChangeTimes(agent.facts, TIMED_KINDS, clock=time.monotonic)
        self._answered_file = AnsweredFile(agent.run_dir)
        self._before: dict[str, tuple[str, str]] = {}
        """Address and the other Node that answered for it last, as far as this agent saw, by the key of ExternalIPOwner."""
        self._given_up = -GIVE_UP_SECONDS
        """Time at which another Node took over from this one, by the clock of `time.monotonic`."""
        self._ours: set[str] = set()
        """Keys of the external IPs that this Node is to answer for."""
        self._announced: dict[str, str] = {}
        """Announced addresses by their key."""
        for row in self._answered_file.read() if GATE in agent.gates else ():
            agent.facts.put(row)
        agent.facts.observe(ExternalIPOwner, self._note)
        with contextlib.suppress(LookupError):  # without Egress other agents find it gone
            agent.part(EgressPart).waits_for(self._hands_over)

    def acts(self) -> Mapping[type[Act], Handler]:
        return {
            AnnounceExternalIP: self._announce,
            RecordAnswered: self._answered,
            RecordExternalIPConflict: self._conflict,
            RecordFailbackWaits: self._waits,
            RecordSubnetIgnored: self._subnet_ignored,
            RecordUnanswered: self._unanswered,
            RecordUnheard: self._unheard,
        }

    def sinks(self) -> Mapping[type, Sink]:
        return {NeighbourResponse: self._responder}

    essential_feeds = frozenset({"claims of external IPs"})

    def feeds(self, _connected: Connected) -> Mapping[str, Feed]:
        if GATE not in self._agent.gates:
            return {}
        return {
            "claims of external IPs": ClaimFeed(self._node),
            "neighbours of external IPs": NetworkFeed(self._node),
        }

    def routes(self) -> Mapping[str, Route]:
        return {"/serviceexternalip": self.shown}

    def bundle(self) -> Mapping[str, Any]:
        return {"serviceexternalips": self.shown({})} if GATE in self._agent.gates else {}

    def conditions(self) -> Mapping[str, Check]:
        return {
            CONDITION: lambda: strict_arp_missing(self._facts),
            UNHEARD: lambda: "; ".join(unheard_texts(self._facts, self._node)),
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as works:
            works.create_task(report_strict_arp(self._agent), name="strictARP")
            works.create_task(self._answered_file.run(self._facts), name="answered external IPs")

    async def close(self) -> None:
        """End announcements, and stop answering."""
        await self._announcer.close()
        self._responder.close()

    def shown(self, query: Query) -> list[dict[str, str]]:
        """The answer of /serviceexternalip, by name and Namespace. Raises Unavailable, NotFound.

        parity: pkg/agent/apiserver/handlers/serviceexternalip/handler.go
        """
        if GATE not in self._agent.gates:
            raise Unavailable(f"{GATE} is not enabled")
        name, namespace = query.get("name", ""), query.get("namespace", "")
        owners = {(row.service, row.ip): row.node for row in self._facts.all(ExternalIPOwner)}
        rows = [
            _row(service, ip, self._pool(service, ip), owners.get((service.key, ip), ""))
            for service in sorted(self._facts.all(Service), key=lambda service: service.key)
            for ip in service.pooled_ips or ("",)
            if service.pools and name in ("", service.name) and namespace in ("", service.namespace)
        ]
        if name and not rows:
            raise NotFound(f"no Service {name} with an external IP of a pool")
        return rows

    def _pool(self, service: Service, ip: str) -> str:
        """Return the pool of one address; for a Service without any all that it names."""
        return pool_of(self._facts, service, ip) if ip else ",".join(service.pools)

    def _note(self, _: type[Fact], key: str) -> None:
        row, quorum = self._facts.get(ExternalIPOwner, key), self._facts.get(Quorum)
        if row and row.node == self._node:
            self._ours.add(key)
        elif key in self._ours:
            self._ours.discard(key)
            self._given_up = time.monotonic()
            ip = self._announced.pop(key, "")
            if row and row.node and row.ip == ip and quorum and quorum.has:
                asyncio.get_running_loop().call_soon(self._record_handover, row)
        if row is None:
            self._before.pop(key, None)
            asyncio.get_running_loop().call_soon(self._facts.drop, AnsweredAddress, key)
        elif row.node not in ("", self._node) and quorum and quorum.has:
            self._before[key] = (row.ip, row.node)

    def _record_handover(self, row: ExternalIPOwner) -> None:
        """Record the handover: an agent that has just started does not know from which Node it takes an address over, but this
        one does.
        """
        service = self._facts.get(Service, row.service)
        message = f"Node {self._node} handed {row.ip} over to {row.node}"
        about = _reference(row.service, service.uid if service else "")
        self._agent.record("ExternalIPHandedOver", message, about=about)

    def _hands_over(self) -> bool:
        """Whether neighbours may not have received yet that another Node has what this one answered for."""
        return time.monotonic() - self._given_up < GIVE_UP_SECONDS

    async def _answered(self, act: RecordAnswered) -> None:
        before = self._answered_before(act)
        others = dict.fromkeys((act.node, *before.others))
        kept = tuple(others)[: len(RELAYED_MACS)]
        self._facts.put(msgspec.structs.replace(before, others=kept))

    def _answered_before(self, act: RecordAnswered | AnnounceExternalIP) -> AnsweredAddress:
        row = self._facts.get(AnsweredAddress, act.holder)
        return row if row and row.ip == act.ip else AnsweredAddress(act.holder, act.ip)

    async def _conflict(self, act: RecordExternalIPConflict) -> None:
        self._agent.record(
            "ExternalIPConflict", act.message, warning=True, about=_reference(act.service, act.uid)
        )

    async def _waits(self, act: RecordFailbackWaits) -> None:
        self._agent.record("ExternalIPFailbackWaits", act.message, about=_reference(act.service, act.uid))

    async def _unanswered(self, act: RecordUnanswered) -> None:
        self._agent.begin(self._still_unanswered(act), f"Event of {act.service}")

    async def _still_unanswered(self, act: RecordUnanswered) -> None:
        """Record it unless answered by then: an agent that starts finds other Nodes and Endpoints one after the other."""
        await asyncio.sleep(UNANSWERED_SECONDS)
        row = self._facts.get(ExternalIPOwner, act.holder)
        if row and row.ip == act.ip and not row.node:
            about = _reference(act.service, act.uid)
            self._agent.record("ExternalIPUnanswered", act.message, warning=True, about=about)

    async def _unheard(self, act: RecordUnheard) -> None:
        self._agent.record(UNHEARD, act.message, warning=True)

    async def _subnet_ignored(self, act: RecordSubnetIgnored) -> None:
        self._agent.record(
            "ExternalIPSubnetIgnored", act.message, warning=True, about=_reference(act.service, act.uid)
        )

    async def _announce(self, act: AnnounceExternalIP) -> None:
        # connections begin here with the first announcement, and this Node may have to give up before the last
        self._facts.put(msgspec.structs.replace(self._answered_before(act), here=True))
        self._announced[act.holder] = act.ip
        await self._announcer.announce(act)
        ip, before = self._before.pop(act.holder, ("", ""))
        if ip != act.ip:
            return
        why = self._cause(act, before)
        message = f"Node {self._node} took over {ip} from {before}{self._within(act, why)}: {why.why}"
        log.info("Took over an external IP", service=act.service, ip=ip, before=before, why=why.why)
        self._agent.record("ExternalIPTakenOver", message, about=_reference(act.service, act.uid))

    def _cause(self, act: AnnounceExternalIP, before: str) -> Cause:
        service = self._facts.get(Service, act.service)
        preferred = service.preferred if service else ()
        reason = cause(self._facts, act.pool, preferred, self._node, before)
        if reason.kind is None and service and service.external_local:
            key = nodes_key(act.service, ipv6=is_ipv6(act.ip))
            row = self._facts.get(PoolAddressNodes, key)
            if row is None or before not in row.parts:
                return Cause(
                    "endpoints: it has none, which externalTrafficPolicy Local needs", PoolAddressNodes, key
                )
        return reason

    def _within(self, act: AnnounceExternalIP, why: Cause) -> str:
        """Return how long after this agent learned the cause."""
        times = self._changes.times
        rows: Mapping[type[Fact], tuple[str, ...]] = {PoolSelector: (act.pool,), Service: (act.service,)}
        news = (
            [(why.kind, why.row)]
            if why.kind
            else [(kind, row) for kind in TIMED_KINDS for row in rows.get(kind, tuple(times.get(kind, ())))]
        )
        known = [times[kind][row] for kind, row in news if row in times.get(kind, {})]
        return f" in {1000 * (time.monotonic() - max(known)):.0f} ms" if known else ""


def _reference(service: str, uid: str) -> ObjectReference:
    namespace, _, name = service.partition("/")
    return ObjectReference(kind="Service", name=name, namespace=namespace, uid=uid)


def _row(service: Service, ip: str, pool: str, node: str) -> dict[str, str]:
    """# parity: pkg/agent/apis/types.go ServiceExternalIPInfo, whose empty fields are left out"""
    fields = {
        "serviceName": service.name,
        "namespace": service.namespace,
        "externalIP": ip,
        "externalIPPool": pool,
        "assignedNode": node,
    }
    return {key: value for key, value in fields.items() if value}


PART = ServiceExternalIPPart
