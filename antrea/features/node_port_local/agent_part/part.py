"""Effects of NodePortLocal: its feeds, the allocation of ports, Pod annotations, Events, and what is shown."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any

from antrea.apis import core
from antrea.apis.annotation import PodAnnotation
from antrea.features.framework.agent_part import Part
from antrea.features.node_port_local.agent_part.allocator import Place, PortAllocator, remembered
from antrea.features.node_port_local.host import PORTS
from antrea.features.node_port_local.request import RecordPortMessage
from antrea.features.node_port_local.row import WATCHED, PortsDecided
from antrea.outside.kube.pod_annotation_sink import PodAnnotationSink
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.nftables.table_reader import NftElements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.engine import Act, Facts, Feed, Sink
    from antrea.features.framework.admission import Watched
    from antrea.features.framework.agent_part import AgentContext, Connected, Handler
    from antrea.outside.http.handlers import Check

IPPROTO_SCTP = 132
_KINDS = {
    "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
    "sctp": (socket.SOCK_STREAM, IPPROTO_SCTP),
}
_NO_PROTOCOL = (errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT)


def hold_port(port: int, protocol: str, *, ipv6: bool) -> socket.socket | None:
    """Hold a port of the Node, so that no other program gets it and no NodePort or ephemeral port collides with it.

    The socket is bound to the port at all addresses of one family, listening where the protocol has that.

    None for SCTP where the kernel lacks it: no program can have a port of it then.
    Raises OSError, as when another program has the port.
    # parity: pkg/agent/nodeportlocal/portcache/port_table.go OpenLocalPort
    """
    kind, number = _KINDS[protocol]
    try:
        held = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, kind, number)
    except OSError as error:
        if protocol == "sctp" and error.errno in _NO_PROTOCOL:
            return None
        raise
    try:
        if ipv6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_STREAM:
            # of connections that are over, not of those who listen
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", port))
        if kind == socket.SOCK_STREAM:
            held.listen(0)
    except OSError:
        held.close()
        raise
    return held


PORT_COUNT = Metric(
    "antrea_agent_node_port_local_port_count", "gauge", "ALPHA",
    "Number of ports of this Node that NodePortLocal has given to Pods.",
)  # fmt: skip
MAX_NAMED = 5
"""Maximum number of Pods without a port that a condition names."""


class NothingFeed:
    """Feed while nodePortLocal.enable is false: entries of an earlier start in nftables must be removed."""

    async def run(self, facts: Facts) -> None:
        facts.synced(PortsDecided)
        await asyncio.Event().wait()


class NodePortLocalPart(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._config = agent, agent.config.node_port_local
        first, _, last = self._config.port_range.partition("-")
        self._ports = PortAllocator(agent.facts, range(int(first), int(last) + 1), _hold)

    def feeds(self, _connected: Connected) -> Mapping[str, Feed]:
        if not self._config.enable:
            return {"NodePortLocal": NothingFeed()}
        return {}

    def watched(self) -> Iterable[Watched]:
        return WATCHED if self._config.enable else ()

    def sinks(self) -> Mapping[type, Sink]:
        return {PodAnnotation: PodAnnotationSink(self._agent.kube)}

    def acts(self) -> Mapping[type[Act], Handler]:
        return {RecordPortMessage: self._record}

    async def run(self) -> None:
        if not self._config.enable:
            return
        elements = NftElements()
        elements_of_maps = [element for name in PORTS for element in await elements.of_map(name)]
        self._ports.remember(remembered((element.value, element.data) for element in elements_of_maps))
        await self._ports.run(self._agent.engine())

    def metrics(self) -> str:
        if not self._config.enable:
            return ""
        counts = self._ports.counts
        samples = [
            Sample(counts[kind, family], {"protocol": kind, "ip_family": family})
            for kind, family in sorted(counts)
        ]
        return PORT_COUNT.text(samples or [Sample(0)])

    def conditions(self) -> Mapping[str, Check]:
        return {"NodePortLocalPortsExhausted": self._lacking}

    def agent_info(self) -> Mapping[str, Any]:
        return {"node_port_local_port_range": self._config.port_range} if self._config.enable else {}

    async def close(self) -> None:
        self._ports.close()

    def _lacking(self) -> str:
        pods = sorted({key.partition(":")[0] for key in self._ports.lacking})
        if not pods:
            return ""
        more = f" and {len(pods) - MAX_NAMED} more" if len(pods) > MAX_NAMED else ""
        named = ", ".join(pods[:MAX_NAMED]) + more
        return (
            f"no port of {self._config.port_range} is free for Pods {named}: extend nodePortLocal.portRange, "
            "or end what else has ports of it"
        )

    async def _record(self, act: RecordPortMessage) -> None:
        about = core.ObjectReference("Pod", act.pod, act.namespace, act.uid)
        reason = "NodePortLocalPortsExhausted" if act.lacks else "NodePortLocalPortChanged"
        self._agent.record(reason, act.message, warning=True, about=about)


def _hold(place: Place) -> socket.socket | None:
    return hold_port(place.port, place.protocol, ipv6=place.ipv6)


PART = NodePortLocalPart
