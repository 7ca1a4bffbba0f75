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
    entered,
    forbids,
)
from antrea.openflow.fields import Zone
from antrea.openflow.flow import Flow
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, Lines, line_of, lines_in, read_octets, set_aside
from antrea.outside.log import klog

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.engine import Engine, Facts
    from antrea.features.network_policy.agent.connection_flush import InspectConnections
    from antrea.outside.vswitch.conntrack import Tracked

log = klog.logger(__name__)

MAX_CONNECTIONS: Final = 4096
"""Connections that are kept cut at a time, the latest; each is a flow."""
TRIES: Final = 30
PAUSE: Final = 1.0
"""Seconds between tries, while ovs-vswitchd is away."""
SOME_ENDPOINT: Final = "0x1"
"""Hash of the packet by which a Service is asked: with none, ofproto/trace ends at the choice of an Endpoint."""
PORTS: Final = ("tcp", "udp", "sctp")


class Connections(Protocol):
    """What outside.ovs_conntrack.Conntrack does for us."""

    async def connections(self, zone: int) -> list[Tracked]:
        """All of a zone. Raises Unavailable."""

    async def forget(self, found: list[Tracked]) -> None:
        """Their next packets are first ones. Raises Unavailable."""


class Switch(Protocol):
    """What outside.ovs_control.Tracer does for us."""

    async def trace(self, flow: str) -> str:
        """The way of a packet. Raises Refused, Unavailable."""


class ConnectionFlusher:
    """Of one Node."""

    def __init__(
        self, facts: Facts, gateway: str, conntrack: Connections, switch: Switch, keep: Path
    ) -> None:
        """`gateway` is the name of its port, `keep` the file; what the last agent cut stays cut from now on."""
        self._facts = facts
        self._gateway = gateway
        self._conntrack = conntrack
        self._switch = switch
        self._keep = keep
        self._kept: dict[str, FlushedConnection] = {}
        for row in _read(keep)[-MAX_CONNECTIONS:]:
            self._put(row)

    async def look(self, engine: Engine, act: InspectConnections) -> None:
        """Look at the connections of one Pod and cut what is forbidden. Raises Unavailable after some tries.

        A connection that the switch refuses to be asked about is left, and logged; all others are looked at.
        """
        for _ in range(TRIES):
            try:
                return await self._look(engine, act)
            except Unavailable as error:
                log.v(2).info("Failed to list connections", interface=act.interface, err=str(error))
                await asyncio.sleep(PAUSE)
        return await self._look(engine, act)

    async def _look(self, engine: Engine, act: InspectConnections) -> None:
        await engine.stand(Flow)
        pod = self._facts.get(PodInterface, act.interface)
        if pod is None:
            return
        found = [
            one
            for zone in sorted({Zone.CT_ZONE_V6 if ":" in ip else Zone.CT_ZONE for ip in pod.ips})
            for one in await self._conntrack.connections(int(zone))
            if not {one.source, one.destination, one.server}.isdisjoint(pod.ips)
        ]
        cut = [(one, whose) for one in found if (whose := await self._forbidden(one))]
        if rows := [
            FlushedConnection(whose.name, connection(one)) for one, whose in cut if one.protocol in PORTS
        ]:
            for row in rows:
                self._put(row)
            await self._write()
        await engine.stand(Flow)
        await self._conntrack.forget([one for one, _ in cut])
        if cut:
            log.info("Flushed connections that a policy denies", pod=pod.pod, count=len(cut))

    async def _forbidden(self, one: Tracked) -> PodInterface | None:
        """By the way of a packet to its Endpoint; rules on Services see which one was asked instead."""
        first = connection(one)
        found = forbids(self._facts, first, await self._trace(entered(self._facts, self._gateway, first)))
        if found is None and one.is_translated:
            asked = connection(one, to_service=True)
            packet = entered(self._facts, self._gateway, asked)
            trace = await self._trace(packet and f"{packet},dp_hash={SOME_ENDPOINT}")
            found = forbids(self._facts, asked, trace, by_service=True)
        return found

    async def _trace(self, packet: str | None) -> str:
        """Empty if the switch does not take the packet."""
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
    """Oldest first; what cannot be read is left out, and logged."""
    try:
        found = lines_in(read_octets(path), FlushedConnection)
    except FileNotFoundError:
        return []
    except Damaged:
        found = Lines([], (1,))
    except OSError as error:
        log.warning("Failed to read the list of flushed connections", path=path, err=str(error))
        return []
    if found.damaged:
        log.error(
            "The list of flushed connections is damaged; servers may resume the lost ones",
            path=path, lines=len(found.damaged), first=found.damaged[0], kept=len(found.values), aside=set_aside(path),
        )  # fmt: skip
    return found.values


def connection(one: Tracked, *, to_service: bool = False) -> Connection:
    """As rules see it, to the Endpoint; or as the client has sent it to a Service of AntreaProxy."""
    if one.protocol.startswith("icmp"):
        return Connection("ICMP", one.source, one.destination, *one.echo[1:])
    translated = one.is_translated and not to_service
    destination, port = (one.server, one.server_port) if translated else (one.destination, one.port)
    return Connection(one.protocol.upper(), one.source, destination, one.source_port, port)
