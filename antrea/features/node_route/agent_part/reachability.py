"""Probe continuously whether packets reach Pods of other Nodes and whether Services are served, and report it in conditions.

A gateway of another Node is reached as its Pods are, through the tunnel or routed. If it is silent while the Node itself answers,
that way is at fault, which neither gossip nor the API server notices. Upstream has no such probe.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from subprocess import SubprocessError
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.config.agent import AgentConfig
from antrea.errors import Invalid
from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.features.node_route.way import direct_hop, needs_tunnel, shared_cidrs, tunnel_end
from antrea.host.pod_cidr import gateway_ip
from antrea.outside.log import klog
from antrea.outside.netlink import reach

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from antrea.engine import Facts
    from antrea.outside.http.handlers import Check

    Ask = Callable[[str, int], Awaitable[str]]
    RecordNodeEvent = Callable[[str, str, bool], None]

log = klog.logger(__name__)

LOOK_SECONDS: Final = 5.0
"""Seconds between two rounds."""
MAX_BATCH: Final = 8
"""Maximum number of Nodes in one round; all have their turn, and silent ones are probed in each."""
SILENT: Final = 2
"""Consecutive rounds without an answer after which a gateway counts as silent."""
SERVED_ROUNDS: Final = 120
"""Number of rounds between two probes of a Service that answered: each is a line in the API server's log."""
MAX_NAMED: Final = 5


class Condition(NamedTuple):
    """Condition of AntreaAgentInfo that is present while something is wrong, and the Events of the Node at its begin and end."""

    type: str
    begin: str
    end: str
    well: str


class Miss(NamedTuple):
    """Number of consecutive rounds without an answer of a Node's gateway, and why."""

    rounds: int
    why: str


TUNNELS = Condition(
    "PodsUnreachable", "PodsUnreachable", "PodsReachable", "Pods of all other Nodes that answer are reached"
)
SERVICES = Condition("ServicesUnserved", "ServicesUnserved", "ServicesServed", "Services are served")


class Reachability:
    """Prober; `conditions` are the faults by type of condition; empty texts if none."""

    def __init__(
        self,
        facts: Facts,
        port: int,
        record: RecordNodeEvent,
        environ: Mapping[str, str],
        *,
        ask: Ask = reach.unreachable,
        device: Callable[[str], str] = reach.device_to,
    ) -> None:
        """`port` is one at which agents may listen; `record` records an Event of the Node: reason, message, whether it is a warning."""
        self._facts, self._port, self._record = facts, port, record
        self._ask, self._device = ask, device
        self._service = environ.get("KUBERNETES_SERVICE_HOST", "")
        self._service_port = int(environ.get("KUBERNETES_SERVICE_PORT", "443"))
        self._last = ""
        """Name of the last Node that was probed in turn."""
        self._misses: dict[str, Miss] = {}
        """Misses by name of the Node."""
        self._rest = 0
        """Number of rounds until the Service is probed again."""
        self._why: dict[Condition, str] = {TUNNELS: "", SERVICES: ""}

    @property
    def conditions(self) -> Mapping[str, Check]:
        return {kind.type: lambda kind=kind: self._why[kind] for kind in self._why}  # type: ignore[misc]

    async def run(self, ready: asyncio.Event) -> None:
        """Probe until cancelled, once Pods can be connected."""
        await ready.wait()
        while True:
            await self.probe_round()
            await asyncio.sleep(LOOK_SECONDS)

    async def probe_round(self) -> None:
        """Probe one round."""
        node = self._facts.get(ThisNode)
        if node is None:
            return
        results = await asyncio.gather(*(self._silence(node, peer) for peer in self._turn()))
        known = {row.name for row in self._facts.all(PeerNode)}
        missed = self._misses | {name: Miss(self._rounds(name) + 1, why) for name, why in results if why}
        well = {name for name, why in results if not why}
        self._misses = {name: miss for name, miss in missed.items() if name in known - well}
        self._set(
            TUNNELS, _sentence({n: miss.why for n, miss in self._misses.items() if miss.rounds >= SILENT})
        )
        await self._ask_service()

    def _rounds(self, name: str) -> int:
        before = self._misses.get(name)
        return before.rounds if before else 0

    def _turn(self) -> list[PeerNode]:
        """Return the silent Nodes, and the next ones by name."""
        rows = sorted(self._facts.all(PeerNode), key=lambda row: row.name)
        suspects = [row for row in rows if row.name in self._misses][:MAX_BATCH]
        others = [row for row in rows if row not in suspects]
        later = [row for row in others if row.name > self._last]
        turn = [*later, *(row for row in others if row.name <= self._last)][:MAX_BATCH]
        self._last = turn[-1].name if turn else ""
        return [*suspects, *turn]

    async def _silence(self, node: ThisNode, peer: PeerNode) -> tuple[str, str]:
        """Return which of its gateways does not answer, though the Node does; empty if none."""
        end = tunnel_end(node, peer)
        for gateway in gateways(node, peer) if end else ():
            if why := await self._ask(gateway, self._port):
                alive = [not await self._ask(ip, self._port) for ip in peer.node_ips]
                silent = f"gateway {gateway} of Node {peer.name} does not answer"
                return peer.name, f"{silent}{await self._lost_path(why, gateway, peer)}" if any(alive) else ""
        return peer.name, ""

    async def _lost_path(self, why: str, gateway: str, peer: PeerNode) -> str:
        """Return which path does not carry packets to a gateway, and the repair."""
        config, link = self._facts.get(AgentConfig), self._facts.get(Transport)
        if config is None or link is None or needs_tunnel(self._facts, peer, ipv6=is_ipv6(gateway)):
            end = tunnel_end(self._facts.need(ThisNode), peer) or ""
            return f" through the tunnel to {end}: {why}{await self._way(end)}"
        hop = direct_hop(link, peer, ipv6=is_ipv6(gateway))
        need = "network between the Nodes has" if hop else "routers between the Nodes have"
        return (
            f" without a tunnel (trafficEncapMode {config.traffic_encap_mode}): {why}{await self._way(hop or gateway)};"
            f" the {need} to carry packets with addresses of Pods, else trafficEncapMode has to be encap"
        )

    async def _way(self, end: str) -> str:
        """Return what is wrong with the route to the end of a tunnel, or without one to the next hop; empty if the kernel has a
        route.
        """
        link = self._facts.get(Transport)
        try:
            device = await asyncio.to_thread(self._device, end)
        except (OSError, Invalid, SubprocessError) as error:
            log.v(2).info("Failed to look up a route", address=end, err=str(error))
            return ""
        if link is None or device == link.device:
            return ""
        way = f"leave by {device}" if device else "have no route"
        return (
            f"; packets to {end} {way}, and not by {link.device} with the transport interface {link.interface}:"
            " transportInterface in antrea-agent.conf has to name the one that reaches other Nodes"
        )

    async def _ask_service(self) -> None:
        """Probe the Service of the API server, which is in every cluster."""
        self._rest -= 1
        if not self._service or self._rest > 0:
            return
        why = await self._ask(self._service, self._service_port)
        where = f"{self._service}:{self._service_port}"
        self._set(
            SERVICES,
            f"Services are not served on this Node: {where} (Service default/kubernetes): {why};"
            " is kube-proxy running?"
            if why
            else "",
        )
        self._rest = 0 if why else SERVED_ROUNDS

    def _set(self, condition: Condition, why: str) -> None:
        before, self._why[condition] = self._why[condition], why
        if why and not before:
            log.warning("Packets do not arrive", condition=condition.type, err=why)
            self._record(condition.begin, why, True)
        elif before and not why:
            log.info("Packets arrive again", condition=condition.type)
            self._record(condition.end, condition.well, False)


def gateways(node: ThisNode, peer: PeerNode) -> list[str]:
    """Return the gateways of the peer that this Node has a path to; none of a Pod CIDR without room for one."""
    cidrs = (cidr for cidr in shared_cidrs(node, peer) if ip_network(cidr).num_addresses > 1)
    return [gateway_ip(cidr) for cidr in cidrs]


def _sentence(silent: Mapping[str, str]) -> str:
    """Return which Nodes' Pods are not reached, and why not those of the first; empty if all are."""
    if not silent:
        return ""
    names = sorted(silent)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"Pods of Node {', '.join(names[:MAX_NAMED])}{more} cannot be reached: {silent[names[0]]}"
