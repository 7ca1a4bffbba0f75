"""BFD between the members of a world of gossip, in virtual time, where packets of both are lost a few in a row."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from gossip_world import LATENCY, Connection, World

from antrea.outside.ovsdb.bfd_feed import SIGNALED, BfdSession, BfdStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from antrea.outside.gossip.machine import Packet

FAST, SLOW = 0.1, 1.0
"""Seconds between packets of a session that is up, and of one that is not (RFC 5880, 6.8.3)."""
MULTIPLIER = 3
TOLD = (0.0, 0.1)
"""Seconds until OVSDB has what changed."""
BURST, EVERY = 10, 200
"""Packets that are lost in a row, of so many on one way."""
STALL, REST = (0.0, 0.2), (0.0, 1.0)
"""Seconds for which a process does not run, and runs."""


class BurstWorld(World):
    """Each member's cable loses BURST of EVERY packets in each direction while `loses` is set."""

    def __init__(self, names: Sequence[str], seed: int, *, stalls: bool) -> None:
        self.loses = False
        self._passed = Counter[tuple[str, str]]()
        super().__init__(names, seed)
        self.ends = {pair: End(self, *pair) for pair in itertools.permutations(names, 2)}
        for name in names if stalls else ():
            self.after(REST, partial(self._stall, name))

    def after(self, seconds: tuple[float, float], event: Callable[[], None]) -> None:
        """Let it happen after so long, from and to."""
        self._at(self.random.uniform(*seconds), event)

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether a packet gets through both cables."""
        for way in ((sender, "out"), (receiver, "in")) if self.loses else ():
            self._passed[way] += 1
            if self._passed[way] % EVERY < BURST:
                return False
        return True

    def _stall(self, name: str) -> None:
        def go_on() -> None:
            self.resume(name)
            self.after(REST, lambda: self._stall(name))

        self.pause(name)
        self.after(STALL, go_on)

    def _try(self, sender: str, packet: Packet, again: float) -> None:
        if self.passes(sender, packet.to):
            origin = Connection() if packet.stream or packet.origin else None
            self.after(LATENCY, lambda: self.deliver(packet.to, packet.data, origin))
        elif again and again < 5:
            self._at(again, lambda: self._try(sender, packet, 2 * again))


class End:
    """Of one session, as RFC 5880, 6.8 has it; what it says is judged as OVSDB's word is."""

    def __init__(self, world: BurstWorld, own: str, other: str) -> None:
        self._world, self._own, self._other = world, own, other
        self._status = BfdStatus("down")
        self._session = BfdSession()
        self._turn = self._heard = 0
        self._due: float | None = None
        world.after((0.0, SLOW), lambda: self._send(0))

    def _send(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._turn += 1
        world, state = self._world, self._status.state
        pause = FAST if state == "up" else SLOW
        if world.passes(self._own, self._other):
            world.after(LATENCY, lambda: world.ends[self._other, self._own].receive(state, pause))
        now = self._turn
        world.after((0.75 * pause, pause), lambda: self._send(now))

    def receive(self, remote: str, pause: float) -> None:
        """A packet of the other end, which is in this state and sends that often."""
        state, diagnostic = self._status.state, self._status.diagnostic
        if remote == "down" and state == "up":
            state, diagnostic = "down", SIGNALED
        elif remote == "down":
            state = "init"
        elif remote == "init" or state == "init":
            state = "up"
        if state == "up" and self._status.state != "up":
            self._turn += 1
            now = self._turn
            self._world.after((0.75 * FAST, FAST), lambda: self._send(now))
        self._is(BfdStatus(state, remote, diagnostic))
        self._heard += 1
        heard = self._heard
        until = MULTIPLIER * max(pause, FAST)
        self._world.after((until, until), lambda: self._expire(heard))

    def _expire(self, heard: int) -> None:
        if heard == self._heard:
            self._is(BfdStatus("down", "down", "Control Detection Time Expired"))

    def _is(self, status: BfdStatus) -> None:
        self._status = status
        self._world.after(TOLD, lambda: self._look(status))

    def _look(self, status: BfdStatus) -> None:
        session, world = self._session, self._world
        before = session.word
        session.update(status, world.now)
        if session.word != before:
            world.saw(self._own, self._other, session.word, unsure=session.word is None)
        self._due = due = session.due
        if due is not None:
            wait = max(due - world.now, 0.0)
            world.after((wait, wait), lambda: self._look(status) if self._due == due else None)
