"""Flush open connections that a policy with `antrea.io/on-deny: flush` denies now.

The verdict is a trace of their first packet, once the flows of the change are in place. Flushed connections are kept in a file
beside the ID journal, so that after a restart of the agent their servers cannot resume them. One connection is one line with
a checksum: a damaged line loses that connection only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from antrea.errors import Refused, Unavailable
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.connection_flush import (
    Connection,
    FlushedConnection,
    first_packet,
    forbidding_pod,
)
from antrea.openflow.fields import Zone
from antrea.openflow.flow import Flow
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, Lines, line_of, lines_in, read_bytes, set_aside
from antrea.outside.log import klog

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.engine import Engine, Facts
    from antrea.features.network_policy.agent.connection_flush import InspectConnections
    from antrea.outside.vswitch.conntrack import Tracked

log = klog.logger(__name__)

MAX_CONNECTIONS: Final = 4096
"""Maximum number of connections that stay cut at a time, the latest; each is a flow."""
TRIES: Final = 30
PAUSE: Final = 1.0
"""Seconds between tries, while ovs-vswitchd is away."""
SOME_ENDPOINT: Final = "0x1"
"""Hash of the packet to a Service in a trace: without one, ofproto/trace ends at the choice of an Endpoint."""
PORTS: Final = ("tcp", "udp", "sctp")


class Connections(Protocol):
    """The methods of outside.vswitch.conntrack.Conntrack that are needed here."""

    async def connections(self, zone: int) -> list[Tracked]:
        """List all connections of a zone. Raises Unavailable."""

    async def forget(self, connections: list[Tracked]) -> None:
        """Remove connections, so that their next packets are first ones. Raises Unavailable."""


class Switch(Protocol):
    """The method of outside.vswitch.appctl that is needed here."""

    async def trace(self, flow: str) -> str:
        """Trace a packet through the switch. Raises Refused, Unavailable."""


class ConnectionFlusher:
    """Flusher of one Node's connections."""

    def __init__(
        self, facts: Facts, gateway: str, conntrack: Connections, switch: Switch, keep: Path
    ) -> None:
        """`gateway` is the name of its port, `keep` the file; connections that the last agent cut stay cut."""
        self._facts = facts
        self._gateway = gateway
        self._conntrack = conntrack
        self._switch = switch
        self._keep = keep
        self._kept: dict[str, FlushedConnection] = {}
        for row in _read(keep)[-MAX_CONNECTIONS:]:
            self._put(row)

    async def flush(self, engine: Engine, act: InspectConnections) -> None:
        """Check the connections of one Pod and cut the forbidden ones. Raises Unavailable after some tries.

        A connection that the switch refuses to trace is left, and logged; all others are checked.
        """
        for _ in range(TRIES):
            try:
                return await self._flush_once(engine, act)
            except Unavailable as error:
                log.v(2).info("Failed to list connections", interface=act.interface, err=str(error))
                await asyncio.sleep(PAUSE)
        return await self._flush_once(engine, act)

    async def _flush_once(self, engine: Engine, act: InspectConnections) -> None:
        await engine.stand(Flow)
        pod = self._facts.get(PodInterface, act.interface)
        if pod is None:
            return
        pod_connections = [
            tracked
            for zone in sorted({Zone.CT_ZONE_V6 if ":" in ip else Zone.CT_ZONE for ip in pod.ips})
            for tracked in await self._conntrack.connections(int(zone))
            if not {tracked.source, tracked.destination, tracked.server}.isdisjoint(pod.ips)
        ]
        cut = [(tracked, whose) for tracked in pod_connections if (whose := await self._forbidden(tracked))]
        if rows := [
            FlushedConnection(whose.name, connection(tracked))
            for tracked, whose in cut
            if tracked.protocol in PORTS
        ]:
            for row in rows:
                self._put(row)
            await self._write()
        await engine.stand(Flow)
        await self._conntrack.forget([tracked for tracked, _ in cut])
        if cut:
            log.info("Flushed connections that a policy denies", pod=pod.pod, count=len(cut))

    async def _forbidden(self, tracked: Tracked) -> PodInterface | None:
        """Trace a packet to its Endpoint; for rules on Services, to the Service."""
        first = connection(tracked)
        pod = forbidding_pod(
            self._facts, first, await self._trace(first_packet(self._facts, self._gateway, first))
        )
        if pod is None and tracked.is_translated:
            service_connection = connection(tracked, to_service=True)
            packet = first_packet(self._facts, self._gateway, service_connection)
            trace = await self._trace(packet and f"{packet},dp_hash={SOME_ENDPOINT}")
            pod = forbidding_pod(self._facts, service_connection, trace, by_service=True)
        return pod

    async def _trace(self, packet: str | None) -> str:
        """Trace a packet; empty if the switch rejects it."""
        try:
            return await self._switch.trace(packet) if packet else ""
        except Refused as error:
            log.warning("Failed to evaluate an open connection; it stays open", packet=packet, err=str(error))
            return ""

    def _put(self, row: FlushedConnection) -> None:
        self._facts.put(row)
        self._kept.pop(row.key, None)
        self._kept[row.key] = row
        if len(self._kept) > MAX_CONNECTIONS:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._facts.drop(FlushedConnection, oldest)

    async def _write(self) -> None:
        lines = [line_of(row) for row in self._kept.values()]
        try:
            await asyncio.to_thread(exchange, self._keep, lines)
        except OSError as error:
            log.warning("Failed to save the list of flushed connections", path=self._keep, err=str(error))


def _read(path: Path) -> list[FlushedConnection]:
    """Read the file, oldest first; unreadable lines are left out, and logged."""
    try:
        lines = lines_in(read_bytes(path), FlushedConnection)
    except FileNotFoundError:
        return []
    except Damaged:
        lines = Lines([], (1,))
    except OSError as error:
        log.warning("Failed to read the list of flushed connections", path=path, err=str(error))
        return []
    if lines.damaged:
        log.error(
            "The list of flushed connections is damaged; servers may resume the lost ones",
            path=path, lines=len(lines.damaged), first=lines.damaged[0], kept=len(lines.values), aside=set_aside(path),
        )  # fmt: skip
    return lines.values


def connection(tracked: Tracked, *, to_service: bool = False) -> Connection:
    """Return the connection as rules see it, to the Endpoint; or as the client has sent it to a Service of AntreaProxy."""
    if tracked.protocol.startswith("icmp"):
        return Connection("ICMP", tracked.source, tracked.destination, *tracked.echo[1:])
    translated = tracked.is_translated and not to_service
    destination, port = (
        (tracked.server, tracked.server_port) if translated else (tracked.destination, tracked.port)
    )
    return Connection(tracked.protocol.upper(), tracked.source, destination, tracked.source_port, port)
