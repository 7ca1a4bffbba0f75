"""Effects of policies: packets that rules send, connections that are flushed, reports, and what is shown of policies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from antrea.apis.policy_report import PolicyReport
from antrea.errors import Invalid
from antrea.features.framework.agent_part import Part
from antrea.features.network_policy.agent.audit import audit_records
from antrea.features.network_policy.agent.connection_flush import InspectConnections
from antrea.features.network_policy.agent.packet_in import LOG, REJECT, STORE
from antrea.features.network_policy.agent.service import SaveState
from antrea.features.network_policy.agent_part.confirmation import Deadlines
from antrea.features.network_policy.agent_part.connection_flush import ConnectionFlusher
from antrea.features.network_policy.agent_part.ended_pod import EndedPodConnections
from antrea.features.network_policy.agent_part.fqdn import (
    FqdnController,
    nearly_full,
    packet_in_handler,
    untrusted,
)
from antrea.features.network_policy.agent_part.metrics import name_metrics, policy_metrics
from antrea.features.network_policy.agent_part.name_scope import pod_scope
from antrea.features.network_policy.agent_part.policies import (
    address_groups,
    applied_to_groups,
    counts,
    fqdn_cache,
    network_policies,
    received,
)
from antrea.features.pod_connectivity.rejection import rejection
from antrea.host.pod_tracking import TrackedPodAddress
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.packet import packet
from antrea.outside.controlplane.report_sink import PolicyReportSink
from antrea.outside.log import klog
from antrea.outside.log.audit_log import AuditLog
from antrea.outside.vswitch.appctl import Tracer
from antrea.outside.vswitch.conntrack import Conntrack
from antrea.outside.vswitch.revalidation import Revalidation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.apis.agent_api import FqdnAnswer
    from antrea.engine import Act, Facts, Sink
    from antrea.features.framework.agent_part import AgentContext, Handler, Route
    from antrea.features.network_policy.agent.fqdn import FqdnAddress
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn
    from antrea.openflow.packet_out import PacketOut
    from antrea.outside.http.handlers import Check

AUDIT_LOG = Path("/var/log/antrea/networkpolicy/np.log")
UNCONFIRMED = "unconfirmed-policies"
"""File of the deadlines of unconfirmed policies."""
SEVERED = "severed"
"""File of the connections that stay cut."""
NAMES = "fqdn-cache"
"""File of the addresses of names that rules match."""


FQDN_CONDITION = "FqdnCacheNearlyFull"
UNTRUSTED_CONDITION = "FqdnServersUntrusted"
log = klog.logger(__name__)


class Audit(Protocol):
    """The method of outside.log.audit_log.AuditLog that is needed here."""

    def line(self, text: str, *, repeats: bool) -> None:
        """Write a line, or count it with equal ones."""


# parity: pkg/agent/controller/networkpolicy/packetin.go HandlePacketIn
class PolicyPackets:
    """Handler of packet-ins of category NETWORK_POLICY; answers go to `send`, lines to `audit`."""

    def __init__(self, facts: Facts, send: Callable[[PacketOut], None], audit: Audit) -> None:
        self._facts = facts
        self._send = send
        self._audit = audit
        self.denied: Callable[[PacketIn, Packet], None] = lambda _found, _read: None
        """Handler of packets of denied connections, where these are exported."""

    def handle(self, packet_in: PacketIn) -> None:
        """Handle one packet-in; one that cannot be parsed is logged and dropped."""
        operations = packet_in.userdata[1] if len(packet_in.userdata) > 1 else 0
        try:
            read = packet(packet_in.frame)
        except Invalid as error:
            log.v(2).info("Failed to parse a packet-in of a policy rule", err=str(error))
            return
        if operations & LOG:
            for line in audit_records(self._facts, packet_in, read):
                self._audit.line(line.text, repeats=line.repeats)
        if operations & STORE:
            self.denied(packet_in, read)
        if operations & REJECT and (answer := rejection(self._facts, packet_in, read)):
            self._send(answer)


class PolicyPart(Part):
    """Part of Kubernetes' and Antrea's policies."""

    def __init__(self, agent: AgentContext) -> None:
        config, switch = agent.config, Path(agent.config.ovs_run_dir)
        self._agent = agent
        self.audit = AuditLog(AUDIT_LOG, config.audit_logging)
        self.packets = PolicyPackets(agent.facts, agent.send, self.audit)
        self._deadlines = Deadlines(agent.facts, agent.run_dir / UNCONFIRMED)
        self._reports = PolicyReportSink(agent.controlplane)
        self._ended = EndedPodConnections(Conntrack(switch))
        self._cutting = ConnectionFlusher(
            agent.facts,
            config.host_gateway,
            Conntrack(switch),
            Tracer(switch, config.ovs_bridge),
            agent.run_dir / SEVERED,
        )
        scope = pod_scope(agent.facts, config, agent.run_dir / NAMES)
        self._revalidation = Revalidation(switch / f"{config.ovs_bridge}.mgmt")
        self._names = FqdnController(
            agent.facts,
            scope,
            self.settled,
            min_ttl=config.fqdn_cache_min_ttl,
            revalidation=self._revalidation,
        )
        self.names = [self._names]
        """Caches of names, including those of other features."""

    def acts(self) -> Mapping[type[Act], Handler]:
        return {InspectConnections: self._flush, SaveState: self._keep}

    def sinks(self) -> Mapping[type, Sink]:
        return {PolicyReport: self._reports, TrackedPodAddress: self._ended}

    def packet_ins(self) -> Mapping[Category, Callable[[PacketIn], None]]:
        answers = packet_in_handler(self._names, self._agent.resume)
        return {Category.NETWORK_POLICY: self.packets.handle, Category.DNS: answers}

    async def run(self) -> None:
        with self._agent.controlplane.notify_connected(self._repeat_reports):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._names.run(), name="FQDN cache")
                tasks.create_task(
                    self._ended.run(self._agent.engine()), name="removal of ended Pods' connections"
                )
                tasks.create_task(self._revalidation.run(), name="datapath revalidation")
                tasks.create_task(self.audit.run(), name="audit log")
                tasks.create_task(self._deadlines.run(), name="deadlines of policies")

    def _repeat_reports(self) -> None:
        self._agent.engine().resync(self._reports)

    def routes(self) -> Mapping[str, Route]:
        facts = self._agent.facts
        return {
            "/networkpolicies": lambda query: network_policies(received(facts), query),
            "/addressgroups": lambda query: address_groups(received(facts), query),
            "/appliedtogroups": lambda query: applied_to_groups(received(facts), query),
            "/fqdncache": lambda query: fqdn_cache(self._answers(query), query),
        }

    def metrics(self) -> str:
        return policy_metrics(self._agent.facts) + self.audit.text() + name_metrics(self.names)

    def conditions(self) -> Mapping[str, Check]:
        return {
            FQDN_CONDITION: lambda: nearly_full(self.names),
            UNTRUSTED_CONDITION: lambda: untrusted(self.names),
        }

    def agent_info(self) -> Mapping[str, Any]:
        return {"network_policy_controller_info": counts(self._agent.facts)}

    def bundle(self) -> Mapping[str, Any]:
        state = received(self._agent.facts)
        return {
            "networkpolicies": state.policies,
            "addressgroups": state.address_groups,
            "appliedtogroups": state.applied_to_groups,
            "fqdncache": fqdn_cache(self._answers({}), {}),
        }

    async def settled(self, row: FqdnAddress) -> None:
        """Return once what follows from an address of a name is enforced. Raises as `Engine.settled`."""
        await self._agent.engine().settled(type(row), row.key)

    def _answers(self, query: Mapping[str, str]) -> list[FqdnAnswer]:
        """Return the answers of all caches, or of the one for `scope` pods or node, each once; with `pod`, also its own of
        other servers.
        """
        caches = [cache for cache in self.names if query.get("scope", "") in ("", cache.scope)]
        rows = dict.fromkeys(answer for cache in caches for answer in cache.answers())
        if "pod" in query:
            rows |= dict.fromkeys(answer for cache in caches for answer in cache.own_answers(query["pod"]))
        return list(rows)

    async def _flush(self, act: InspectConnections) -> None:
        await self._cutting.flush(self._agent.engine(), act)

    async def _keep(self, _: SaveState) -> None:
        """Save the state, since Services that rules name have changed."""
        self._agent.save_state()


PART = PolicyPart
