"""Cuts connections that stand, where a policy with `antrea.io/on-deny: flush` has come to forbid them.

What the switch says of a first packet like theirs decides, once the flows of the change stand. Which were cut is kept in a file
beside the journal of ids, so that the next agent does not let their servers take them up again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from antrea.errors import Refused, Unavailable
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.cut import Connection, Severed, entered, forbids
from antrea.openflow.fields import Zone
from antrea.openflow.flow import Flow
from antrea.outside import klog
from antrea.outside.exchange import exchange

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.engine import Engine, Facts
    from antrea.features.network_policy.cut import Look
    from antrea.outside.ovs_conntrack import Tracked

log = klog.logger(__name__)

MOST: Final = 4096
"""Connections that are kept cut at a time, the latest; each is a flow."""
TRIES: Final = 30
PAUSE: Final = 1.0
"""Seconds between tries, while ovs-vswitchd is away."""
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


class Cutting:
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
        self._kept: dict[str, Severed] = {}
        for row in _read(keep)[-MOST:]:
            self._put(row)

    async def look(self, engine: Engine, act: Look) -> None:
        """Look at the connections of one Pod and cut what is forbidden. Raises Unavailable after some tries.

        A connection that the switch refuses to be asked about is left, and logged; all others are looked at.
        """
        for _ in range(TRIES):
            try:
                return await self._look(engine, act)
            except Unavailable as no:
                log.v(2).info("Connections cannot be looked at now", interface=act.interface, err=str(no))
                await asyncio.sleep(PAUSE)
        return await self._look(engine, act)

    async def _look(self, engine: Engine, act: Look) -> None:
        await engine.stand(Flow)
        pod = self._facts.get(PodInterface, act.interface)
        if pod is None:
            return
        found = [
            one
            for zone in sorted({Zone.CT_ZONE_V6 if ":" in ip else Zone.CT_ZONE for ip in pod.ips})
            for one in await self._conntrack.connections(int(zone))
            if one.source in pod.ips or one.destination in pod.ips
        ]
        cut = [(one, whose) for one in found if (whose := await self._forbidden(one))]
        if rows := [Severed(whose.name, connection(one)) for one, whose in cut if one.protocol in PORTS]:
            for row in rows:
                self._put(row)
            await self._write()
        await engine.stand(Flow)
        await self._conntrack.forget([one for one, _ in cut])
        if cut:
            log.info("Connections that a policy forbids were cut", pod=pod.pod, count=len(cut))

    async def _forbidden(self, one: Tracked) -> PodInterface | None:
        first = connection(one)
        packet = entered(self._facts, self._gateway, first)
        if packet is None:
            return None
        try:
            trace = await self._switch.trace(packet)
        except Refused as no:
            log.warning("A connection that stands cannot be judged, and is left", packet=packet, err=str(no))
            return None
        return forbids(self._facts, first, trace)

    def _put(self, row: Severed) -> None:
        self._facts.put(row)
        self._kept.pop(row.key, None)
        self._kept[row.key] = row
        if len(self._kept) > MOST:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._facts.drop(Severed, oldest)

    async def _write(self) -> None:
        data = msgspec.msgpack.encode(list(self._kept.values()))
        try:
            await asyncio.to_thread(exchange, self._keep, (data,))
        except OSError as why:
            log.warning("Which connections were cut is not kept", path=self._keep, err=str(why))


def _read(path: Path) -> list[Severed]:
    """Oldest first; a file that cannot be read is as good as none."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=list[Severed])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as why:
        log.warning("Which connections were cut is not known", path=path, err=str(why))
        return []


def connection(one: Tracked) -> Connection:
    """As rules see it."""
    if one.protocol.startswith("icmp"):
        return Connection("ICMP", one.source, one.destination, *one.echo[1:])
    return Connection(one.protocol.upper(), one.source, one.destination, one.source_port, one.port)
