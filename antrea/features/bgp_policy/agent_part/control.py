"""Control of FRR on this Node: sink of sessions and networks, and feed of their state.

FRR runs in a container of its own, which starts its daemons while the file `wanted` exists (build/image/run_bgp_engine). It keeps its
configuration when the agent ends, and an agent changes nothing after its start before the list of wanted entries is complete, so that
no session of a router ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from antrea.errors import Unavailable
from antrea.facts.family import is_ipv6
from antrea.features.bgp_policy.imported import ImportedRoute, imported_routes
from antrea.features.bgp_policy.state import (
    IDLE,
    BfdPeerState,
    BgpPeerState,
    FrrState,
    bfd_states,
    bgp_states,
)
from antrea.host.bgp import KINDS, BfdOnlySession, BgpImports, BgpNeighbor, BgpPrefix, BgpSpeaker
from antrea.openflow.cookie import Category
from antrea.outside.frr.configuration import bfd_tree, bgp_tree
from antrea.outside.frr.daemon import FrrDaemon
from antrea.outside.log import klog
from antrea.outside.netlink.listening_port import listening_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from antrea.engine import Facts
    from antrea.outside.frr.configuration import Tree
    from antrea.outside.frr.daemon import RefusedLine

    RouteEntry = BgpSpeaker | BgpNeighbor | BgpPrefix | BfdOnlySession

log = klog.logger(__name__)
T = TypeVar("T", bound="RouteEntry")
INTERVAL: Final = 1.0
"""Seconds between reads of the state."""
MISSING_INTERVAL: Final = 0.1
"""Seconds between tries to connect to a daemon that does not run."""
REPEAT: Final = 10.0
"""Seconds after which the configuration is compared again, as another program may have changed it."""
CONFIRMATION: Final = 5.0
"""Seconds for which the engine waits for a change, so that a network is withdrawn before its flows are removed."""
PORT_IN_USE: Final = (
    "another program of this Node, such as another BGP speaker, listens at TCP port {}: set spec.listenPort of the BGPPolicy,"
    " or end that program"
)
TOO_MANY_ROUTES: Final = "Maximum Number of Prefixes"
"""Part of FRR's words on a session that a limit of one of both sides has ended."""
NOT_RUNNING: Final = "FRR is not running on this Node: its container antrea-bgp-engine is not ready"


class FrrControl:
    """Sink of the entries of `antrea.host.bgp`, and feed of FrrState, BgpPeerState and BfdPeerState."""

    def __init__(
        self, folder: Path, listening: Callable[[], Iterable[tuple[str, str, int]]] = listening_ports
    ) -> None:
        """`folder` is shared with the container of FRR, which has its sockets there; `listening` returns the ports in use on this
        Node: protocol, address and number.
        """
        self._listening = listening
        self._file, self._ending = folder / "wanted", folder / "ending"
        self._bgpd, self._bfdd = FrrDaemon(folder / "bgpd.vty"), FrrDaemon(folder / "bfdd.vty")
        self._wanted: dict[type, dict[str, Any]] = {kind: {} for kind in KINDS}
        self._is_known = False
        """Whether all that is wanted is known, so that the rest may go."""
        self._is_available = False
        """Whether all daemons that are needed took their configuration the last time."""
        self.changed = -math.inf
        """When FRR last got something else, by the clock of `time.monotonic`."""
        self._version = 0
        self._aligned = -1
        """The version of what is wanted that FRR has."""
        self.advertised: frozenset[str] = frozenset()
        """Networks in the configuration of the speaker."""
        self._news, self._progress = asyncio.Event(), asyncio.Event()
        self._refused: dict[str, tuple[RefusedLine, ...]] = {}
        self._idle_since: dict[str, float] = {}
        """When sessions became idle, by the address of the router."""
        self._limits: dict[str, BgpImports | None] = {}
        """Limits of imported routes while none of them had ended the session."""
        self._repeat: dict[str, float] = {}
        """When the configuration of a daemon is compared again."""

    def is_needed(self) -> bool:
        """Whether there is any session."""
        return bool(self._wanted[BgpSpeaker] or self._wanted[BfdOnlySession])

    @property
    def speaker(self) -> BgpSpeaker | None:
        """The wanted speaker."""
        return self._wanted[BgpSpeaker].get("self")

    @property
    def aligned(self) -> int:
        """Number of the last state that FRR has whole; grows with each change."""
        return self._aligned

    @property
    def commands(self) -> int:
        """Number of changes of FRR's configuration so far."""
        return self._bgpd.commands + self._bfdd.commands

    async def apply(self, put: Sequence[RouteEntry], drop: Sequence[RouteEntry]) -> None:
        """Note what is wanted, and wait until FRR has it if it runs; else it gets it when it starts."""
        for entry in drop:
            self._wanted[type(entry)].pop(entry.key, None)
        for entry in put:
            self._wanted[type(entry)][entry.key] = entry
        self._change()
        if self._is_known:
            await self._confirmed(self._version)

    async def resync(self, entries: Sequence[RouteEntry]) -> None:
        """Note all that is wanted; nothing is changed before the sweep."""
        for kind in KINDS:
            self._wanted[kind] = {entry.key: entry for entry in entries if type(entry) is kind}
        self._change()

    async def sweep(self, category: int) -> None:
        """All is known now: change the configuration of FRR, and remove the rest of it."""
        if category == Category.ROUTES:
            self._is_known = True
            self._change()

    @contextlib.contextmanager
    def outlived(self) -> Iterator[None]:
        """Let the container run on, if its Pod ends, while the block lasts and for 6 s at most: routers receive withdrawals."""
        with contextlib.suppress(OSError):
            self._ending.touch()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._ending.unlink(missing_ok=True)

    def stop(self) -> None:
        """Let the container end the daemons: the feature is off."""
        self._file.unlink(missing_ok=True)

    async def run(self, facts: Facts) -> None:
        """Follow FRR, as a feed, until cancelled."""
        for kind in (FrrState, BgpPeerState, BfdPeerState):
            facts.synced(kind)
        try:
            while True:
                self._news.clear()
                if self._is_known:
                    await self._step(facts)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL if self._is_aligned() else MISSING_INTERVAL):
                        await self._news.wait()
        finally:
            await self._bgpd.close()
            await self._bfdd.close()

    def _is_aligned(self) -> bool:
        return self._aligned == self._version

    def _change(self) -> None:
        self._version += 1
        self._news.set()

    async def _confirmed(self, version: int) -> None:
        """Wait until FRR has this version; not where it does not run."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONFIRMATION):
                while self._aligned < version and self._is_available:
                    self._progress.clear()
                    await self._progress.wait()

    async def _step(self, facts: Facts) -> None:
        """Make FRR as it should be, once, and read its state."""
        version, reasons = self._version, list[str]()
        try:
            self._write_file(more=True)
            neighbors, prefixes = self._all(BgpNeighbor), self._all(BgpPrefix)
            advertised = frozenset(row.prefix for row in prefixes) if self.speaker else frozenset()
            tree = bgp_tree(self.speaker, neighbors, prefixes)
            sessions = bfd_tree(neighbors, self._all(BfdOnlySession))
            # one daemon that does not run does not keep the other from its changes
            reasons.append(await self._follow(self._bgpd, tree, needed=self.speaker is not None))
            reasons.append(await self._follow(self._bfdd, sessions, needed=self.is_needed()))
            self._write_file(more=False)
            self._is_available = not any(reasons)
            if self._is_available:
                self.changed = self.changed if self._is_aligned() else time.monotonic()
                self._aligned, self.advertised = version, advertised
        except OSError as error:
            reasons.append(f"the files of FRR: {error.strerror or error}")
        self._progress.set()
        await self._read(facts, next(filter(None, reasons), ""))

    def _all(self, kind: type[T]) -> list[T]:
        return [entry for _, entry in sorted(self._wanted[kind].items())]

    async def _follow(self, daemon: FrrDaemon, tree: Tree, *, needed: bool) -> str:
        """Align one daemon if it runs; return the reason why it has to, and does not."""
        try:
            is_new = await daemon.connect()
            now = asyncio.get_running_loop().time()
            if is_new or not self._is_aligned() or now >= self._repeat.get(daemon.name, now):
                self._refused[daemon.name] = await daemon.align(tree)
                self._repeat[daemon.name] = now + REPEAT
        except Unavailable as error:
            self._refused.pop(daemon.name, None)
            if not needed:
                return ""
            log.v(2).info("FRR is not available", err=str(error))
            return self._used_port() if daemon is self._bgpd else NOT_RUNNING
        return ""

    def _used_port(self) -> str:
        """Return the reason why bgpd does not run: it ends at once where another program has its port."""
        port = self.speaker.listen_port if self.speaker else 0
        with contextlib.suppress(Unavailable):
            if any(protocol == "TCP" and number == port for protocol, _, number in self._listening()):
                return PORT_IN_USE.format(port)
        return NOT_RUNNING

    def _write_file(self, *, more: bool) -> None:
        """Write what the container is to run: nothing, BFD alone, or BGP as well, with the port that it listens at.

        `more`: only where that is more than before, as a daemon ends after its sessions. Raises OSError.
        """
        text = f"{self.speaker.listen_port}\n" if self.speaker else "\n" if self.is_needed() else ""
        try:
            current = self._file.read_text()
        except FileNotFoundError:
            current = ""
        if text == current or (more and current and not text.strip()):
            return
        if not text:
            self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_name("wanted.new")
        fresh.write_text(text)
        fresh.rename(self._file)

    async def _read(self, facts: Facts, why: str) -> None:
        """Write the state into facts."""
        bgp: tuple[BgpPeerState, ...] = ()
        bfd: tuple[BfdPeerState, ...] = ()
        imports: dict[str, str] = {}
        with contextlib.suppress(Unavailable):
            if self.speaker and self._bgpd.is_connected():
                bgp = bgp_states(await self._bgpd.state("show bgp neighbors json"))
                imports = await self._imports()
                await self._retry_idle(bgp)
            if self.is_needed() and self._bfdd.is_connected():
                bfd = bfd_states(await self._bfdd.state("show bfd peers json"))
        refused = tuple((line.command, line.why) for lines in self._refused.values() for line in lines)
        state = FrrState(why if self.is_needed() else "", refused)
        if facts.get(FrrState) != state:
            facts.put(state)
        facts.replace(BgpPeerState, bgp)
        facts.replace(BfdPeerState, bfd)
        facts.replace(ImportedRoute, tuple(ImportedRoute(*pair) for pair in sorted(imports.items())))
        facts.synced(ImportedRoute)

    async def _retry_idle(self, states: Iterable[BgpPeerState]) -> None:
        """Try sessions again that are idle for long: FRR doubles the time each time that one ends, up to a minute. Raises
        Unavailable.

        One that ended because of too many routes waits for the time of its limit, for another limit, or for the router.
        """
        now = asyncio.get_running_loop().time()
        idle = {row.address: TOO_MANY_ROUTES in row.error for row in states if row.state == IDLE}
        self._idle_since = {address: self._idle_since.get(address, now) for address in idle}
        for neighbor in self._all(BgpNeighbor):
            address = neighbor.address
            if idle.get(address):
                is_due = self._limits.get(address, neighbor.imports) != neighbor.imports
            else:
                is_due = now - self._idle_since.get(address, now) >= neighbor.idle_hold
                self._limits[address] = neighbor.imports
            if is_due:
                self._idle_since[address], self._limits[address] = now, neighbor.imports
                await self._bgpd.clear(address)

    async def _imports(self) -> dict[str, str]:
        """Read the routes that are taken from routers: next hops by network. Raises Unavailable."""
        routes: dict[str, str] = {}
        for neighbor in self._all(BgpNeighbor):
            if neighbor.imports is not None:
                family = "ipv6" if is_ipv6(neighbor.address) else "ipv4"
                command = f"show bgp {family} unicast neighbors {neighbor.address} routes json"
                routes |= imported_routes(await self._bgpd.state(command))
        return routes
