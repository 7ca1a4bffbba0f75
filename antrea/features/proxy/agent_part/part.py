"""Effects of Services: answers to packets without an Endpoint, stale UDP connections, health checks, Events, and what is shown."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis.core import ObjectReference
from antrea.engine.core.workload import Workload
from antrea.errors import Invalid
from antrea.facts.node import ThisNode
from antrea.facts.service import EarlierConnection, ServiceEndpoint, ServicePort
from antrea.features.framework.agent_part import NotFound, Part
from antrea.features.pod_connectivity.rejection import rejection
from antrea.features.proxy.agent import GATE
from antrea.features.proxy.agent_part.earlier_connections import EarlierConnectionFeed
from antrea.features.proxy.agent_part.health import HealthServers, ProxyHealth
from antrea.features.proxy.agent_part.invalid_drop import InvalidDropReport
from antrea.features.proxy.agent_part.kept_affinity import KeptAffinity
from antrea.features.proxy.agent_part.listening_ports import ListeningPortFeed
from antrea.features.proxy.agent_part.long_affinity import LongAffinity
from antrea.features.proxy.agent_part.metrics import ProxyMetrics
from antrea.features.proxy.agent_part.stale_connections import StaleConnections
from antrea.features.proxy.agent_part.takeover_remains import TakeoverRemains
from antrea.features.proxy.dsr import ModeUnavailable
from antrea.features.proxy.dsr_no_tunnel import PathRefused, refusal_text
from antrea.features.proxy.endpoint import group_id, scopes
from antrea.features.proxy.external_address import ExternalIPConflict
from antrea.features.proxy.host import refused_node_port_addresses
from antrea.host.invalid_drop import CONDITION
from antrea.host.udp_binding import UdpBinding
from antrea.openflow.ct import nat_dst
from antrea.openflow.fields import SERVICE_GROUP_ID
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.packet import packet
from antrea.openflow.tables import SERVICE_LB
from antrea.outside.log import klog
from antrea.outside.vswitch.conntrack import Conntrack
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.engine import Act, Engine, Facts, Feed, Sink
    from antrea.facts.service import HealthCheck
    from antrea.features.framework.agent_part import AgentContext, Connected, Handler
    from antrea.openflow.packet_in import PacketIn
    from antrea.openflow.packet_out import PacketOut
    from antrea.outside.http.handlers import Check

NO_MODE: Final = "LoadBalancerModeUnavailable"
"""Reason of Events of Services and Nodes, and a condition of the agent."""
log = klog.logger(__name__)
_LOAD_BALANCED = f"table={SERVICE_LB.name},"
_BETWEEN = re.compile(r"[, ]+")


# parity: pkg/agent/proxy/proxier.go HandlePacketIn
class ServicePackets:
    """Handler of packet-ins of category SVC_REJECT; answers go to `send`: a TCP RST, else ICMP port unreachable."""

    def __init__(self, facts: Facts, send: Callable[[PacketOut], None]) -> None:
        self._facts = facts
        self._send = send

    def handle(self, packet_in: PacketIn) -> None:
        """Answer one packet; one that cannot be read has no answer."""
        try:
            read = packet(packet_in.frame)
        except Invalid as error:
            log.v(2).info("Could not read a packet that no Endpoint takes", err=str(error))
            return
        if answer := rejection(self._facts, packet_in, read):
            self._send(answer)


# parity: pkg/agent/apiserver/handlers/ovsflows/handler.go getServiceFlows
class ServiceFlows(NamedTuple):
    """Numbers of the groups of a Service, and the actions and matches by which its flows are found."""

    groups: frozenset[int]
    actions: frozenset[str]
    looked_up: frozenset[str]
    """Matches of the flows by which clients keep their Endpoint."""

    def matches(self, flow: str) -> bool:
        """Whether a line of `ovs-ofctl dump-flows` is one of the Service."""
        match, _, actions = flow.partition(" actions=")
        if _LOAD_BALANCED in match and not self.looked_up.isdisjoint(_BETWEEN.split(match)):
            return True
        return not self.actions.isdisjoint(_BETWEEN.split(actions))


def service_flows(facts: Facts, service: str) -> ServiceFlows:
    """Return the flows of Service `service` (namespace/name); without groups if AntreaProxy does not serve it."""
    node = facts.get(ThisNode)
    families = node.families if node else set()
    groups, actions = set(), set()
    for port in facts.by(ServicePort, "service", service):
        groups |= {
            group_id(facts, port, ipv6=ipv6, local=local)
            for ipv6 in families
            for local in scopes(port, ipv6=ipv6)
        }
        for endpoint in facts.by(ServiceEndpoint, "behind", port.behind):
            actions.add(nat_dst(endpoint.ip, endpoint.port))
    actions |= {f"group:{number}" for number in groups}
    looked_up = frozenset(str(SERVICE_GROUP_ID(number).match) for number in groups)
    return ServiceFlows(frozenset(groups), frozenset(actions), looked_up)


class ProxyPart(Part):
    """Part that also runs while kube-proxy serves Services."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._packets = ServicePackets(agent.facts, agent.send)
        switch = Path(agent.config.ovs_run_dir)
        self._stale = StaleConnections(Conntrack(switch))
        ofctl = Ofctl(switch / f"{agent.config.ovs_bridge}.mgmt")
        self._affinity = LongAffinity(agent.facts, ofctl)
        self._kept_affinity = KeptAffinity(agent.facts, ofctl, switch, agent.run_dir / "affinity")
        self._invalid = InvalidDropReport(agent.facts, partial(agent.record, warning=True))
        self._metrics = ProxyMetrics(agent.facts)
        self._engine: Engine | None = None

    def feeds(self, connected: Connected) -> Mapping[str, Feed]:
        if GATE not in self._agent.gates:
            return {}
        switch = Conntrack(Path(self._agent.config.ovs_run_dir))
        proxy_all = self._agent.config.antrea_proxy.proxy_all
        feed = EarlierConnectionFeed(connected.node, switch, proxy_all=proxy_all)
        ports = ListeningPortFeed(proxy_all=proxy_all)
        return {"connections that began earlier": feed, "ports in use on the Node": ports}

    def sinks(self) -> Mapping[type, Sink]:
        return {UdpBinding: self._stale}

    def acts(self) -> Mapping[type[Act], Handler]:
        return {
            ExternalIPConflict: self._conflict,
            ModeUnavailable: self._no_mode,
            PathRefused: self._refused,
        }

    def conditions(self) -> Mapping[str, Check]:
        return {NO_MODE: lambda: refusal_text(self._agent.facts), CONDITION: lambda: self._invalid.message}

    async def run(self) -> None:
        self._engine = self._agent.engine()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stale.run(self._agent.engine()))
            tasks.create_task(self._affinity.run())
            tasks.create_task(self._kept_affinity.run(self._settled))
            tasks.create_task(self._answer_health_checks())
            tasks.create_task(self._invalid.run())
            config = self._agent.config
            proxy_all = config.antrea_proxy.proxy_all
            if proxy_all:
                self._report_node_port_addresses()
            remains = TakeoverRemains(config.host_gateway, self._by_switch, proxy_all=proxy_all)
            tasks.create_task(remains.run())

    def _report_node_port_addresses(self) -> None:
        """Report networks of the configuration in which no NodePort can be served."""
        for message in refused_node_port_addresses(self._agent.config):
            self._agent.record("NodePortAddressesRefused", message, warning=True)

    def _by_switch(self) -> set[str]:
        """Return addresses to which connections continue by the switch."""
        return {row.ip for row in self._agent.facts.all(EarlierConnection) if row.by_switch}

    async def _settled(self) -> None:
        await self._agent.engine().quiet(reports=False)

    async def _answer_health_checks(self) -> None:
        """Answer health checks where AntreaProxy does all of kube-proxy's work."""
        proxy = self._agent.config.antrea_proxy
        if GATE not in self._agent.gates or not proxy.proxy_all or proxy.disable_service_health_check_server:
            return
        health = ProxyHealth(self._agent.facts, self._agent.node)
        servers = HealthServers(self._agent.facts, self._agent.config, health, self._not_listening)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(health.run(self._agent.engine()))
            tasks.create_task(servers.run())

    def metrics(self) -> str:
        if GATE not in self._agent.gates:
            return ""
        workloads = self._engine.workloads() if self._engine else {}
        return self._metrics.text(workloads.get(GATE, Workload()), self._kept_affinity.clients)

    def packet_ins(self) -> Mapping[Category, Callable[[PacketIn], None]]:
        return {Category.SVC_REJECT: self._packets.handle}

    def flow_selections(self) -> Mapping[str, Callable[[str, str], ServiceFlows]]:
        return {"service": self._service}

    async def _conflict(self, act: ExternalIPConflict) -> None:
        about = ObjectReference("Service", act.name, act.namespace, act.uid)
        self._agent.record("ExternalIPConflict", act.message, warning=True, about=about)

    async def _no_mode(self, act: ModeUnavailable) -> None:
        about = ObjectReference("Service", act.name, act.namespace, act.uid)
        self._agent.record(NO_MODE, act.message, warning=True, about=about)

    async def _refused(self, act: PathRefused) -> None:
        self._agent.record(NO_MODE, act.message, warning=True)

    def _not_listening(self, message: str, check: HealthCheck | None) -> None:
        about = ObjectReference("Service", check.name, check.namespace, check.uid) if check else None
        self._agent.record("FailedToStartServiceHealthcheck", message, warning=True, about=about)

    def _service(self, namespace: str, name: str) -> ServiceFlows:
        """Return the flows that choose and translate for a Service, and its groups. Raises Invalid, NotFound."""
        if GATE not in self._agent.gates:
            raise Invalid("service", "AntreaProxy is off: kube-proxy serves Services, without flows")
        flows = service_flows(self._agent.facts, f"{namespace}/{name}")
        if not flows.groups:
            raise NotFound(f"Service {namespace}/{name} is not served by this Node")
        return flows


PART = ProxyPart
