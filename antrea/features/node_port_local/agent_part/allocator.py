"""Allocation of a port of the Node to each request, held by a socket as long as the request exists.

Allocations outlive the agent in two places: its nftables, which lead to the Pods meanwhile, and the annotations of the Pods.
nftables take precedence: a user who may edit a Pod cannot take a port from another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from antrea.features.node_port_local.row import (
    FAMILIES,
    HeldPort,
    PortLocalPod,
    PortLocalService,
    PortRequest,
    PortsDecided,
)
from antrea.host.nft import NftElement
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Engine, Facts

log = klog.logger(__name__)

RETRY_SECONDS: Final = 10.0
"""Between tries to find a port while none is free."""
SYNCED = (PortLocalPod, PortLocalService)


class Closer(Protocol):
    """Holder of a port: a socket."""

    def close(self) -> None:
        """Release the port."""


class Place(NamedTuple):
    """A port of the Node, in one family."""

    port: int
    protocol: str
    ipv6: bool


Hold = Callable[[Place], Closer | None]
"""Hold a port; None if nothing need be held. Raises OSError."""
Target = tuple[str, str, int]
"""Protocol, address and port of a Pod."""


class Held(NamedTuple):
    """A request that has a port."""

    place: Place
    by: Closer | None

    def close(self) -> None:
        """Release the port."""
        if self.by is not None:
            self.by.close()


class PortAllocator:
    """Follows requests and answers each with a row HeldPort."""

    def __init__(self, facts: Facts, ports: range, hold: Hold) -> None:
        self._facts, self._ports, self._hold = facts, ports, hold
        self._held: dict[str, Held] = {}
        """Allocations by key of the request."""
        self._users: dict[Place, str] = {}
        """Keys of the requests by allocated port."""
        self._next = {False: ports.start, True: ports.start}
        """Start of the next search, by family."""
        self._remembered: Mapping[Target, Place] = {}

    @property
    def lacking(self) -> list[str]:
        """Keys of the requests for which no port is free."""
        return [row.key for row in self._facts.all(HeldPort) if not row.node_port]

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """Ports in use by protocol and family."""
        return Counter((place.protocol, FAMILIES[place.ipv6]) for place in self._users)

    def remember(self, remembered: Mapping[Target, Place]) -> None:
        """Set the targets in nftables of an earlier start; to be called before `run`."""
        self._remembered = remembered

    async def run(self, engine: Engine) -> None:
        """Run until cancelled."""
        await self._know_all(engine)
        with self._facts.watch(PortRequest) as changed:
            while True:
                changed.clear()
                self.settle()
                try:
                    async with asyncio.timeout(RETRY_SECONDS if self.lacking else None):
                        await changed.wait()
                except TimeoutError:
                    continue

    async def _know_all(self, engine: Engine) -> None:
        """Wait until all Services and Pods are listed and their requests derived, so that they get their previous ports."""
        with self._facts.watch(*SYNCED) as changed:
            while not all(self._facts.feeds.has(kind) for kind in SYNCED):
                changed.clear()
                await changed.wait()
        await engine.stand(NftElement)

    def settle(self) -> None:
        """Release ports without a request, then answer requests without a port: first with their previous ones."""
        wanted = {row.key: row for row in self._facts.all(PortRequest)}
        for key in [key for key in self._held if key not in wanted]:
            held = self._held.pop(key)
            del self._users[held.place]
            held.close()
        for row in self._facts.all(HeldPort):
            if row.key not in wanted:
                self._facts.drop(HeldPort, row.key)
        waiting = [row for key, row in sorted(wanted.items()) if key not in self._held]
        if waiting:
            self._answer(waiting)
        if self._facts.get(PortsDecided) is None:
            self._facts.put(PortsDecided())
            self._facts.synced(PortsDecided)

    def _answer(self, waiting: list[PortRequest]) -> None:
        annotated = dict(self._annotated())
        memory = {row.key: place for row in waiting if (place := self._remembered.get(_target(row)))}
        lost: dict[str, str] = {}
        for before in (memory, annotated):
            for row in (row for row in waiting if row.key in before and row.key not in self._held):
                lost[row.key] = self._try(row, before[row.key])
        spoken_for = {*annotated.values()}
        exhausted: dict[tuple[str, bool], str] = {}
        for row in (row for row in waiting if row.key not in self._held):
            kind = row.protocol, row.ipv6
            if kind not in exhausted and (why := self._search(row, spoken_for, lost.get(row.key, ""))):
                exhausted[kind] = why
            if kind in exhausted:
                self._report(row, 0, exhausted[kind])

    def _annotated(self) -> Iterator[tuple[str, Place]]:
        """Yield, by key of a request, the port that the annotation of its Pod names."""
        for pod in self._facts.all(PortLocalPod):
            for mapping in pod.mappings:
                ipv6 = mapping.ip_family == FAMILIES[True]
                key = f"{pod.key}:{mapping.pod_port}/{mapping.protocol}/{FAMILIES[ipv6]}"
                yield key, Place(mapping.node_port, mapping.protocol, ipv6)

    def _try(self, row: PortRequest, place: Place, message: str = "") -> str:
        """Take this port for the request; return why not, if it cannot be."""
        if place.port not in self._ports:
            return f"is outside of portRange {self._ports[0]}-{self._ports[-1]}"
        if user := self._users.get(place):
            return f"is that of {user.partition(':')[0]}"
        try:
            by = self._hold(place)
        except OSError as error:
            return f"is taken: {error.strerror}"
        self._held[row.key], self._users[place] = Held(place, by), row.key
        self._report(row, place.port, message)
        return ""

    def _search(self, row: PortRequest, spoken_for: set[Place], lost: str) -> str:
        """Take the next free port; return why there is none, if there is none. `lost` is why it is not the previous one."""
        count, start = len(self._ports), self._ports.index(self._next[row.ipv6])
        why = "all of them are given to Pods"
        # last of all those that some annotation names, since its Pod may ask for it again
        for last in (False, True):
            for step in range(count):
                place = Place(self._ports[(start + step) % count], row.protocol, row.ipv6)
                if place in self._users or (place in spoken_for) != last:
                    continue
                message = (
                    f"{_name(row)} is at Node port {place.port} now: the one before {lost}" if lost else ""
                )
                if not (no := self._try(row, place, message)):
                    following = (start + step + 1) % count
                    self._next[row.ipv6] = self._ports[following]
                    return ""
                why = f"other programs have those that no Pod has, the last one {no}"
        return f"no port of {self._ports[0]}-{self._ports[-1]} is free ({row.protocol}, {FAMILIES[row.ipv6]}): {why}"

    def _report(self, row: PortRequest, port: int, message: str) -> None:
        if message:
            what = "Gave a Pod another Node port than before" if port else "Found no free Node port"
            log.warning(what, pod=row.pod, port=row.port, protocol=row.protocol, why=message)
        text = f"{_name(row)} is not reached at this Node: {message}" if message and not port else message
        self._facts.put(HeldPort(row.key, port, text))

    def close(self) -> None:
        """Release all ports."""
        for held in self._held.values():
            held.close()
        self._held.clear()
        self._users.clear()


def _name(row: PortRequest) -> str:
    return f"Port {row.port}/{row.protocol} ({FAMILIES[row.ipv6]})"


def _target(row: PortRequest) -> Target:
    return row.protocol, row.ip, row.port


def remembered(elements: Iterable[tuple[str, str]]) -> dict[Target, Place]:
    """Return the port of each target, from elements of the maps such as ("tcp . 61000", "10.10.1.5 . 80")."""
    places: dict[Target, Place] = {}
    for value, data in elements:
        protocol, _, node_port = value.partition(" . ")
        ip, _, port = data.rpartition(" . ")
        places[protocol, ip, int(port)] = Place(int(node_port), protocol, ":" in ip)
    return places
