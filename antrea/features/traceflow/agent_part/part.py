"""Effects of Traceflows: their packets are made and injected, and what the switch reports of them goes into their status."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.apis.core import ObjectMeta, Pod, Service
from antrea.apis.crd.traceflow import NodeResult
from antrea.config.agent import AgentConfig
from antrea.errors import Invalid, Refused, Unavailable
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_part import Part
from antrea.features.framework.gate import EnabledGates
from antrea.features.proxy.agent import GATE as ANTREA_PROXY
from antrea.features.traceflow.agent import InjectPacket, PrepareTrace, SeenTrace
from antrea.features.traceflow.deciding_flow import FlowKey, detailed
from antrea.features.traceflow.observation import TracedPacket, captured, is_sender, observations
from antrea.features.traceflow.preparation import PreparedTrace, prepared
from antrea.features.traceflow.trace import FAILED, RUNNING, TRACEFLOWS, RunningTrace
from antrea.openflow.fields import TRACE_INJECTED_REG_MARK
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.flow import Flow
from antrea.openflow.frame import frame
from antrea.openflow.packet import TCP, UDP, packet
from antrea.openflow.packet_out import PacketOut
from antrea.outside.kube.clock import epoch
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from antrea.apis.crd.traceflow import CapturedPacket
    from antrea.engine import Act, Facts
    from antrea.facts.fact import Fact
    from antrea.features.framework.agent_part import AgentContext, Handler
    from antrea.features.traceflow.preparation import Target
    from antrea.openflow.packet_in import PacketIn
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

DELAY, LOCAL_DELAY = 2.0, 0.1
"""Seconds until a packet is injected: for flows of other Nodes, and of this one (parity: injectPacketDelay)."""
MAX_RESULTS: Final = 8
"""Maximum number of results of one Node about one injected packet."""
TRIES: Final = 10
FIRST_PAUSE: Final = 0.05
"""Seconds of the first pause; doubled after each try."""


async def destination_of(facts: Facts, kube: Kube, trace: RunningTrace) -> Target:
    """Resolve the destination; None if it is an address, or not needed. Raises Invalid, Unavailable, Refused."""
    to = trace.spec.destination
    namespace = to.namespace or "default"
    if trace.receiver_only:
        return None
    if to.ip:
        _check_address(facts, to.ip)
        return None
    if to.pod:
        pod = await kube.get(f"/api/v1/namespaces/{namespace}/pods/{to.pod}", Pod)
        if pod is None:
            raise Invalid(
                "spec.destination.pod", f'failed to get the destination Pod: pods "{to.pod}" not found'
            )
        return pod
    if not to.service:
        return None
    if not _has_proxy(facts):
        raise Invalid("spec.destination.service", "using Service destination requires AntreaProxy enabled")
    service = await kube.get(f"/api/v1/namespaces/{namespace}/services/{to.service}", Service)
    if service is None:
        raise Invalid(
            "spec.destination.service",
            f'failed to get the destination Service: services "{to.service}" not found',
        )
    return service


def _check_address(facts: Facts, address: str) -> None:
    """Check an address; without AntreaProxy a ClusterIP is translated outside of the pipeline. Raises Invalid."""
    config = facts.get(AgentConfig)
    if config is None or _has_proxy(facts):
        return
    for cidr in filter(None, (config.service_cidr, config.service_cidr_v6)):
        if ip_address(address) in ip_network(cidr, strict=False):
            raise Invalid("spec.destination.ip", "using ClusterIP destination requires AntreaProxy enabled")


def _has_proxy(facts: Facts) -> bool:
    gates = facts.get(EnabledGates)
    return gates is not None and ANTREA_PROXY in gates


class StoredTrace(msgspec.Struct, frozen=True):
    """Fields that are read of a Traceflow before its status is written."""

    metadata: ObjectMeta = ObjectMeta()
    status: dict[str, Any] = {}


class ResultWriter:
    """Writer for the Traceflows of one Node."""

    def __init__(
        self, kube: Kube, node: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._kube, self._node, self._sleep = kube, node, sleep

    async def add(self, trace: RunningTrace, result: NodeResult, packet: CapturedPacket | None) -> None:
        """Add a result; a Traceflow that is over or another one keeps what it has. A failure is logged."""

        def changed(status: dict[str, Any]) -> dict[str, Any]:
            added = {"results": [*status.get("results", ()), msgspec.to_builtins(result)]}
            return added | ({"capturedPacket": msgspec.to_builtins(packet)} if packet else {})

        await self._write(trace, changed)

    async def fail(self, trace: RunningTrace, why: str) -> None:
        """End the Traceflow: this Node cannot do its part. A failure to write that is logged."""
        reason = f"Node: {self._node}, error: {why}"
        log.info("Traceflow failed", traceflow=trace.name, err=why)
        await self._write(trace, lambda _: {"phase": FAILED, "reason": reason})

    async def _write(self, trace: RunningTrace, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        pause, path, why = FIRST_PAUSE, f"{TRACEFLOWS}/{trace.name}", "it changes all the time"
        for _ in range(TRIES):
            try:
                held = await self._kube.get(path, StoredTrace)
                if held is None or held.metadata.uid != trace.uid or held.status.get("phase") != RUNNING:
                    return
                version = {"uid": trace.uid, "resourceVersion": held.metadata.resource_version}
                body = {"metadata": version, "status": changed(held.status)}
                await self._kube.patch(f"{path}/status", body)
            except (Refused, Unavailable) as error:
                why = str(error)
                await self._sleep(pause)
                pause *= 2
            else:
                return
        log.error("Failed to update the status of a Traceflow", traceflow=trace.name, err=why)


class TraceflowPart(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._facts = agent, agent.facts
        self._results = ResultWriter(agent.kube, agent.node)
        self._result_counts: Counter[str] = Counter()
        """Results by UID."""
        agent.facts.observe(RunningTrace, self._changed)

    def acts(self) -> Mapping[type[Act], Handler]:
        return {PrepareTrace: self._prepare, InjectPacket: self._inject}

    def packet_ins(self) -> Mapping[Category, Callable[[PacketIn], None]]:
        return {Category.TRACEFLOW: self._handle}

    def _changed(self, _: type[Fact], name: str) -> None:
        """Drop what was kept of a removed trace."""
        trace = self._facts.get(RunningTrace, name)
        for row in (self._facts.get(PreparedTrace, name), self._facts.get(SeenTrace, name)):
            if row is not None and (trace is None or trace.uid != row.uid):
                self._facts.drop(type(row), name)
        running = {row.uid for row in self._facts.all(RunningTrace)}
        self._result_counts = Counter(
            {uid: number for uid, number in self._result_counts.items() if uid in running}
        )

    def _running(self, name: str, uid: str) -> RunningTrace | None:
        trace = self._facts.get(RunningTrace, name)
        return trace if trace is not None and trace.uid == uid else None

    async def _prepare(self, act: PrepareTrace) -> None:
        trace = self._running(act.name, str(act.key))
        if trace is not None:
            self._agent.begin(self._prepared(trace), f"Traceflow {trace.name}")

    async def _prepared(self, trace: RunningTrace) -> None:
        """Find the destination, and let the flows follow from it."""
        try:
            target = await destination_of(self._facts, self._agent.kube, trace)
            pods = self._facts.by(PodInterface, "pod", trace.pod)
            if not pods:
                raise Invalid("spec.source.pod", f"Pod {trace.pod} is gone")
            row = prepared(self._facts, trace, pods[0], target)
        except Invalid as error:
            await self._results.fail(trace, error.why)
        except (Refused, Unavailable) as error:
            await self._results.fail(trace, f"failed to get the destination: {error}")
        else:
            if self._running(trace.name, trace.uid):
                self._facts.put(row)

    async def _inject(self, act: InjectPacket) -> None:
        self._agent.begin(self._injected(act.prepared), f"packet of Traceflow {act.prepared.name}")

    async def _injected(self, row: PreparedTrace) -> None:
        """Inject after the time that flows take; a trace that is over by then, or that this Node began before, has no packet."""
        await asyncio.sleep(LOCAL_DELAY if row.nearby else DELAY)
        trace = self._running(row.name, row.uid)
        if trace is None or self._agent.node in trace.reported:
            return
        gateway = self._facts.get(OvsPort, self._agent.config.host_gateway)
        if self._facts.get(PodInterface, row.interface) is None or gateway is None:
            await self._results.fail(trace, f"Pod {trace.pod} is gone")
            return
        headers = row.headers
        port = headers.source_port or random.randrange(1024, 1 << 16)  # noqa: S311 (a port, not a secret)
        headers = msgspec.structs.replace(
            headers,
            dscp=trace.tag,
            destination_mac=headers.destination_mac or gateway.mac,
            source_port=port if headers.protocol in (TCP, UDP) else 0,
        )
        log.v(2).info("Injecting the packet of a Traceflow", traceflow=row.name, tag=trace.tag)
        self._agent.send(PacketOut(frame(headers), row.ofport, (TRACE_INJECTED_REG_MARK,)))

    def _handle(self, packet_in: PacketIn) -> None:
        """One packet of a trace; of live traffic only the first counts."""
        try:
            read = packet(packet_in.frame)
        except Invalid as error:
            log.v(2).info("Failed to parse a traced packet", err=str(error))
            return
        trace = next((row for row in self._facts.all(RunningTrace) if row.tag == read.dscp), None)
        if trace is None or trace.ipv6 != read.ipv6:
            log.v(2).info("A traced packet belongs to no Traceflow", tag=read.dscp)
            return
        if not self._counts(trace):
            return
        traced = TracedPacket(trace, packet_in, read)
        result = NodeResult(
            node=self._agent.node,
            timestamp=epoch(),
            observations=detailed(self._facts, traced, observations(self._facts, traced), self._flows),
        )
        tells = trace.receiver_only or trace.dropped_only or is_sender(self._facts, traced)
        taken = captured(read) if trace.spec.live_traffic and tells else None
        self._agent.begin(self._results.add(trace, result, taken), f"result of Traceflow {trace.name}")

    def _flows(self, keep: Callable[[FlowKey], bool]) -> Iterator[Flow]:
        """Return the wanted flows of the switch, by their keys."""
        return self._agent.engine().standing_of(Flow, keep)

    def _counts(self, trace: RunningTrace) -> bool:
        """Whether one more result of this Node is wanted."""
        self._result_counts[trace.uid] += 1
        if not trace.spec.live_traffic:
            return self._result_counts[trace.uid] <= MAX_RESULTS
        if self._result_counts[trace.uid] > 1:
            return False
        self._facts.put(SeenTrace(trace.name, trace.uid), urgent=True)
        return True


PART = TraceflowPart
