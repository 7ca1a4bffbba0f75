"""Answers to `antctl trace-packet`: resolve the ends of the packet, and let OVS trace it.

Source: upstream pkg/agent/apiserver/handlers/ovstracing.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from antrea.agent.api.trace_request import Entered, packet, request_of
from antrea.apis.agent_api import TraceAnswer
from antrea.apis.core import CoreStruct, Pod
from antrea.errors import Invalid, Refused, Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_part import NotFound
from antrea.host.pod_cidr import gateway_ip
from antrea.openflow.fields import GLOBAL_VIRTUAL_MAC
from antrea.openflow.tables import SERVICE_LB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.agent.api.trace_request import Peer, TraceRequest
    from antrea.agent.api.view import AgentView

T = TypeVar("T")

_TAKEN_FOR_OWN = ">> Not tunneling to our own address"
_NOTE = (
    "\nNote: real packets leave by this tunnel. After ct, ofproto/trace takes the tunnel that a packet is going to"
    " for the one\nthat it came by, and so says that it is dropped.\n"
)
"""OVS (ofproto/ofproto-dpif-xlate.c) compares with the tunnel of the packet as it was received; a resumed trace starts
with the fields that were set before ct."""
_REFERENCE = re.compile(
    r"(?P<before>\btable=|\bgoto_table:|\bresubmit\([^,)]*,|\b(?:at|from) table )(?P<number>\d+)"
)
_STEP = re.compile(r"^(?P<before> *(?P<number>\d+)\. )", re.MULTILINE)


def named(text: str, names: Mapping[int, str]) -> str:
    """Replace table numbers in a dumped flow by names, as upstream's antctl prints them.

    table=5 ... resubmit(,7) ... ct(table=9) ... goto_table:8
    """
    return _REFERENCE.sub(
        lambda match: match["before"] + names.get(int(match["number"]), match["number"]), text
    )


def named_trace(text: str, names: Mapping[int, str]) -> str:
    """Replace table numbers in the output of ofproto/trace by names, also after the number at which each step begins.

    ` 3. in_port=1, priority 190` becomes ` 3. Classifier: in_port=1, priority 190`
    """

    def step(match: re.Match[str]) -> str:
        name = names.get(int(match["number"]))
        return f"{match['before']}{name}: " if name else match["before"]

    return _STEP.sub(step, named(text, names))


class Cluster(Protocol):
    """The method of outside.kube.Kube that is needed here."""

    async def get(self, path: str, kind: type[T]) -> T | None:
        """Return the object at `path`; None if there is none. Raises Unavailable, Refused."""


class Switch(Protocol):
    """The method of outside.ovs_control.Tracer that is needed here."""

    async def trace(self, flow: str) -> str:
        """Trace a packet through the switch. Raises Refused, Unavailable."""


class _ServiceSpec(CoreStruct, frozen=True):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")


class _Service(CoreStruct, frozen=True):
    spec: _ServiceSpec = _ServiceSpec()


class _Port(NamedTuple):
    """A port of the bridge where a packet enters or leaves."""

    number: int
    mac: str
    ips: tuple[str, ...]
    kind: Literal["pod", "gateway", "tunnel", "other"]


class PacketTracer:
    """Tracer that resolves ends to local ports by the agent, to other Pods and Services by kube-apiserver, and then queries the
    switch.
    """

    def __init__(self, view: AgentView, cluster: Cluster | None, switch: Switch) -> None:
        """Without a cluster only Pods of this Node, ports and addresses are resolved."""
        self._view = view
        self._cluster = cluster
        self._switch = switch

    async def answer(self, query: Mapping[str, str]) -> TraceAnswer:
        """Trace the packet of a query. Raises Invalid, NotFound, Refused, Unavailable; all but the last name the parameter at
        fault.
        """
        request = request_of(query)
        flow = packet(request, await self._entered(request))
        try:
            text = await self._switch.trace(flow)
        except Refused as error:
            raise Invalid("flow", f"OVS rejects the packet: {error.why}") from error
        names = {number: name for name, number in self._view.tables.items()}
        return TraceAnswer(named_trace(text, names) + (_NOTE if _TAKEN_FOR_OWN in text else ""))

    async def _entered(self, request: TraceRequest) -> Entered:
        gateway = self._port(self._view.config.host_gateway)
        if gateway is None:
            raise Unavailable(f"port {self._view.config.host_gateway} of the bridge does not exist yet")
        port = self._input(request.port) if request.port else None
        src_ip, dst_ip, dst_mac = "", "", ""
        if request.source:
            src_ip, local = await self._end(request.source, "source", request.family)
            port = port or local
        if request.destination:
            dst_ip, local = await self._end(request.destination, "destination", request.family)
            dst_mac = (local or gateway).mac
        if port is None and request.source and request.source.name:
            # a Pod of another Node; without a tunnel, its packets come in by the gateway
            port = self._tunnel()
        port = port or gateway
        if port.kind == "other":
            raise Invalid(
                "port", "invalid OVS port: packets enter by a Pod's, the gateway's or a tunnel's port"
            )
        if port.kind == "tunnel":
            return Entered(port.number, GLOBAL_VIRTUAL_MAC, GLOBAL_VIRTUAL_MAC, src_ip, dst_ip)
        balanced = SERVICE_LB.name in self._view.tables
        return Entered(port.number, port.mac, dst_mac, src_ip, dst_ip, balanced)

    def _input(self, peer: Peer) -> _Port:
        port = self._local(peer)
        if port is None:
            raise NotFound(
                f"input port not found: {peer} is neither a port of the bridge nor a Pod of this Node"
            )
        return port

    def _local(self, peer: Peer) -> _Port | None:
        return self._pod(str(peer)) if peer.name else self._port(peer.port)

    def _pod(self, pod: str) -> _Port | None:
        rows = self._view.facts.by(PodInterface, "pod", pod)
        row = min(rows, key=lambda row: (row.if_dev != "eth0", row.name), default=None)
        return _Port(row.ofport, row.mac, row.ips, "pod") if row else None

    def _port(self, name: str) -> _Port | None:
        facts = self._view.facts
        if pod := facts.get(PodInterface, name):
            return _Port(pod.ofport, pod.mac, pod.ips, "pod")
        row = facts.get(OvsPort, name)
        if row is None:
            return None
        if name == self._view.config.host_gateway:
            node = facts.get(ThisNode)
            return _Port(
                row.ofport, row.mac, tuple(map(gateway_ip, node.pod_cidrs)) if node else (), "gateway"
            )
        return _Port(row.ofport, row.mac, (), "tunnel" if row.type in ("tunnel", "ipsec-tunnel") else "other")

    def _tunnel(self) -> _Port | None:
        names = [row.name for row in self._view.facts.all(OvsPort) if row.type == "tunnel"]
        return self._port(min(names)) if names else None

    async def _end(self, peer: Peer, field: str, family: int) -> tuple[str, _Port | None]:
        """Resolve an end to its address, and to its port if that is on this Node."""
        if peer.ip:
            return peer.ip, None
        local = self._local(peer)
        if local is None and not peer.name:
            raise NotFound(f"{field}: OVS port {peer} not found")
        ips = local.ips if local else await self._remote(peer, field)
        family_ips = [ip for ip in ips if _family(ip) == family]
        if not family_ips:
            raise NotFound(f"{field} {peer} has no IPv{family} address")
        return family_ips[0], local

    async def _remote(self, peer: Peer, field: str) -> Iterable[str]:
        """Look up the addresses of a Pod of another Node or, for a destination, of a Service."""
        if self._cluster is None:
            raise Unavailable(
                f"kube-apiserver is needed to look up {field} {peer}, and this agent has no connection to it"
            )
        place = f"/api/v1/namespaces/{peer.namespace}"
        pod = await self._cluster.get(f"{place}/pods/{peer.name}", Pod)
        if pod:
            return [pod_ip.ip for pod_ip in pod.status.pod_ips] or [pod.status.pod_ip]
        if field == "source":
            raise NotFound(f"source: Pod {peer} not found")
        service = await self._cluster.get(f"{place}/services/{peer.name}", _Service)
        if service is None:
            raise NotFound(f"destination: neither a Pod nor a Service {peer} found")
        return service.spec.cluster_ips or [service.spec.cluster_ip]


def _family(ip: str) -> int:
    """Return the IP version of an address; 0 if it is not an address: a Pod without one yet, a Service without ClusterIP."""
    try:
        return ip_address(ip).version
    except ValueError:
        return 0
