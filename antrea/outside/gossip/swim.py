"""SWIM as a pure state machine: packets, ticks and lists of peers in; messages and changes of membership out.

Every member probes the few that follow it on a ring of hashed names, so that a death is found within a stated time and
by several witnesses; it also probes a random member, so that what was parted finds together. An accusation goes to
the accused as well, who refutes it with a new incarnation.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple, Protocol

from antrea.outside.gossip.bfd_view import BfdViews
from antrea.outside.gossip.broadcast_queue import BroadcastQueue
from antrea.outside.gossip.direct_probe import DirectProbes
from antrea.outside.gossip.message import LEAP, Ack, Gossip, Ping, Relay, Standing, Sync, Update, size
from antrea.outside.gossip.peer import PeerState, place
from antrea.outside.gossip.quorum import QuorumTracker
from antrea.outside.gossip.suspicion import Suspicion, Timing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from antrea.outside.gossip.message import Message, View

ROOM = 1160
"""Bytes of names and rumours in a packet: with all headers it fits the least MTU of IPv6, 1280."""
RELAYED_MOST = 1024
"""Pings at a time that go for others."""
ASKED_MOST = 64
"""Members at once. Where there are more, it takes longer to find out who is cut off."""
SYNCS_PER_SECOND = 3
TOLD_AT_ONCE = 64
"""Members that are sent a view before the next round of gossip."""


class Origin(Protocol):
    """The TCP connection that a message came by."""

    def send(self, data: bytes) -> None:
        """A sealed packet, back by the same way."""


class Send(NamedTuple):
    """A message to a peer."""

    to: str
    message: Message
    stream: bool = False
    """Over TCP."""
    renew: bool = False
    """The peer may have been restarted."""
    origin: Origin | None = None
    """Origin that `received` was given: the answer goes back there."""


class Change(NamedTuple):
    """A member that lives now, or does so no longer."""

    node: str
    alive: bool
    why: str
    left: bool = False
    """It announced its leave itself."""


class _Probe:
    __slots__ = ("again", "since", "target")

    def __init__(self, target: str, since: float) -> None:
        self.target, self.since, self.again = target, since, False


class Swim:
    """This member's view of all."""

    def __init__(self, me: str, random: Random, timing: Timing, now: float) -> None:
        self.me = me
        self.out: list[Send] = []
        self.changes: list[Change] = []
        self.incarnation = 0
        self.left = False
        self.rows: dict[str, PeerState] = {}
        self.majority = QuorumTracker(timing, now)
        self.bfd = BfdViews(me, timing)
        self._shown: set[str] = set()
        """Members that are alive by the `changes` so far."""
        self._direct_probes = DirectProbes(timing, now)
        self._doubted: set[str] = set()
        """Members that may be lost, if it is not this one that is."""
        self._silent: frozenset[str] = frozenset()
        """Members that were asked because of them, and do not answer."""
        self._deaths: dict[str, Update] = {}
        """Suspicions of others about members that were not suspected before: these are probed first."""
        self._random = random
        self._timing = timing
        self._updates = BroadcastQueue()
        self._probes: dict[int, _Probe] = {}
        self._relayed: dict[int, tuple[str, int, float]] = {}
        """Number of our ping -> who asked, its number, until when."""
        self._number = random.getrandbits(32)
        self._suspects: set[str] = set()
        self._ring: tuple[list[str], list[str]] | None = None
        """Living members from this one on, round the ring; of them the observed. None: they have changed."""
        self._is_counted = False
        self._walk: list[str] = []
        self._ticked = now
        self._probe_at = now + random.random() * timing.period
        self._wander_at = self._gossip_at = now
        self._sync_at = now + timing.sync * random.random()
        self._syncs: list[float] = []

    def peers(self, names: Iterable[str]) -> None:
        """Set the other members, dead or alive; all else is forgotten."""
        wanted = set(names) - {self.me}
        for name in self.rows.keys() - wanted:
            del self.rows[name]
            self._show(name, "its Node is gone")
            self._updates.forget(name)
        for name in sorted(wanted - self.rows.keys()):
            self.rows[name] = PeerState(name)
        self._walk = [name for name in self._walk if name in wanted]
        self._ring = None
        self._suspects &= wanted
        self._is_counted = False
        self.bfd.keep_only({self.me, *wanted})

    def report_bfd(self, name: str, up: bool | None, *, unsure: bool = False) -> None:
        """BFD found a switch up or down; None: it looks there no more, or is `unsure`."""
        self.bfd.observe(name, up, unsure=unsure)
        self._is_counted = False
        self._tell_views(self._random_members(TOLD_AT_ONCE))

    @property
    def census(self) -> tuple[bool, int, int]:
        """Whether this member may act for all, how many live, of how many; it is one of them itself."""
        has = self.majority.has and self.me not in self.bfd.aside
        return has, len(self._living()[0]) + 1, len(self.rows) + 1

    def leave(self) -> None:
        """Announce to all members that this one leaves; it refutes nothing any more."""
        self.left = True
        self._updates.add(Update(self.me, self.incarnation, Standing.LEFT, self.me))
        for name in self._random_members(self._timing.fanout * 2):
            self._send(name, Gossip(self.incarnation, self._updates_for(name)))

    def received(self, now: float, sender: str, message: Message, origin: Origin | None = None) -> None:
        """An authentic message of a peer."""
        row = self.rows.get(sender)
        if row is None:
            return
        met = not row.lives
        row.heard = self.majority.heard = now
        self.bfd.reached(now, sender)
        alive = Update(sender, message.incarnation, Standing.ALIVE)
        if abs(message.incarnation - row.incarnation) > LEAP:  # its own word overrides what was said of it
            self._set(now, row, alive, alive.verb)
        self._apply_update(now, alive)
        synced = isinstance(message, Sync)
        for update in message.updates:
            self._apply_update(now, update, synced=synced)
        if isinstance(message, Gossip | Sync) and message.views:
            self._merge_views(sender, message.views)
        if isinstance(message, Ping):
            answer = Ack(message.number, self.incarnation, self._updates_for(sender))
            self._send(sender, answer, origin=origin)
        elif isinstance(message, Ack):
            self._answered(message.number)
        elif isinstance(message, Relay):
            self._relay(now, sender, message)
        elif isinstance(message, Sync) and message.asks:
            self._send(sender, self._all(asks=False), stream=True, origin=origin)
        if met and row.lives:
            self._sync(now, sender)

    def tick(self, now: float) -> None:
        """Do what is due; to be called every 20 to 50 ms."""
        gap, self._ticked = now - self._ticked, now
        if gap > self._timing.stall:
            self._stalled(now, gap)
        for number, probe in list(self._probes.items()):
            self._overdue(now, number, probe)
        for number in [relay for relay, (_, _, until) in self._relayed.items() if until <= now]:
            del self._relayed[number]
        for name in sorted(self._suspects):
            row = self.rows[name]
            is_over = row.suspicion and row.suspicion.ends <= now and not self._restarts(now, row, name)
            if is_over and not self._asks_itself(now, row, name):
                dead = Update(name, row.incarnation, Standing.DEAD, self.me)
                self._set(now, row, dead, self.bfd.why_dead(name, self._is_current))
        self._judge(now)
        if not self.left:
            self._start_probes(now)
        self._ask(now)
        self._accept_reported_deaths(now)
        self._spread(now)
        if not self._is_counted:
            self.majority.count(self.me, self.rows, self._is_sure, self._is_silent)
            self._is_counted = True
        self.majority.update(now)

    # what is heard

    def _apply_update(self, now: float, update: Update, *, synced: bool = False) -> None:
        if update.node == self.me:
            self._accused(now, update)
            return
        row = self.rows.get(update.node)
        if row is None or update.incarnation > row.incarnation + LEAP:
            return
        if update.standing == Standing.DEAD and row.lives and self._restarts(now, row, update.node):
            update = Update(update.node, update.incarnation, Standing.SUSPECT, update.witness)
        if (update.incarnation, update.standing) > (row.incarnation, row.standing):
            is_sudden = row.suspicion is None or now - row.suspicion.since < self._timing.answer
            if update.standing == Standing.DEAD and row.lives and is_sudden:
                # it may be old, or of those who were parted from it: it is for the one spoken of to refute it
                self._deaths[update.node] = update
                self._direct_probes.ask(now, [update.node])
                self._send(update.node, Gossip(self.incarnation, (update,)))
                return
            first = row.incarnation < 0
            self._set(now, row, update, update.verb)
            if synced and first:
                self._updates.forget(update.node)
        elif (
            row.suspicion
            and (update.incarnation, update.standing) == (row.incarnation, row.standing)
            and row.suspicion.witness(update.witness)
        ):
            self._updates.add(update)

    def _accused(self, now: float, update: Update) -> None:
        if update.incarnation > self.incarnation + LEAP:
            return  # whoever believes it is told better by our next message to him
        if update.standing == Standing.ALIVE:
            self.incarnation = max(self.incarnation, update.incarnation)  # of an earlier life of ours
        elif update.incarnation >= self.incarnation and not self.left:
            self.incarnation = update.incarnation + 1
            self._updates.add(Update(self.me, self.incarnation, Standing.ALIVE))
            if update.standing >= Standing.DEAD:
                self.majority.restart(now)

    def _set(self, now: float, row: PeerState, update: Update, why: str) -> None:
        lived = row.lives
        self._suspects.discard(update.node)
        row.incarnation, row.standing, row.suspicion = update.incarnation, update.standing, None
        if update.standing == Standing.SUSPECT:
            # itself is not among its witnesses, and we are
            possible = min(self._timing.observed, len(self._living()[0]))
            row.suspicion = Suspicion(now, possible, self._timing)
            row.suspicion.witness(update.witness)
            self._suspects.add(update.node)
            if update.witness != self.me and update.node in self._targets():
                self._send(update.node, Gossip(self.incarnation, (update,)))
        self._updates.add(update)
        self._is_counted = False
        if row.lives != lived:
            self._ring = None
            self._show(update.node, why)

    # what is seen

    def _merge_views(self, sender: str, views: Iterable[View]) -> None:
        members = {self.me, *self.rows}
        for view in views:
            if {view.observer, view.node} <= members:
                self.bfd.merge(view, is_direct=sender == view.observer)
        self._is_counted = False

    def _judge(self, now: float) -> None:
        """Judge members by the state that most observers see, and by whether the agent answers."""
        before, away = self.bfd.aside, set(self.bfd.away)
        for name, since in self.bfd.down_members(now, self._is_current):
            row = self.rows.get(name)
            if row is None or not row.lives or row.heard > since:
                continue
            if now - since >= self._timing.answer:
                dead = Update(name, row.incarnation, Standing.DEAD, self.me)
                self._set(now, row, dead, "neither its agent nor its switch gives a sign of life")
            else:
                self._direct_probes.ask(now, [name])
        for name in self.bfd.members_to_probe(now):
            self._number += 1
            self._send(name, Ping(self._number, self.incarnation), stream=True)
        self._is_counted &= away == self.bfd.away.keys()
        for name in sorted(before ^ self.bfd.aside):
            self._show(name, "its switch is down" if name in self.bfd.aside else "its switch is up")

    def _ask(self, now: float) -> None:
        """Probe suspects, and all members if it may be this one that is cut off; conclude from missing answers."""
        lost = {name for name in self.bfd.lost if name in self.rows and self.rows[name].lives}
        # one suspect may as well be dead
        doubted = lost | self._suspects if len(self._suspects) > 1 else lost
        if doubted - self._doubted:
            self._direct_probes.ask(now, [*sorted(doubted), *self._random_members(ASKED_MOST)])
        self._doubted = doubted
        for name in self._direct_probes.update(now, self.rows):
            self._number += 1
            ping = Ping(self._number, self.incarnation, self._updates_for(name))
            self._send(name, ping)
            self._send(name, ping, stream=True)
        patience = self._timing.blind if lost else self._timing.doubt
        before, self._silent = self._silent, self._direct_probes.silent(now, patience)
        self._is_counted &= before == self._silent

    def _accept_reported_deaths(self, now: float) -> None:
        """Accept deaths that others reported, if the members were probed and do not answer."""
        dead = self._direct_probes.silent(now, self._timing.answer)
        for name, update in list(self._deaths.items()):
            row = self.rows.get(name)
            if row is None or row.incarnation > update.incarnation or not self._direct_probes.is_open(name):
                del self._deaths[name]
            elif name in dead:
                self._set(now, row, update, update.verb)

    def _show(self, name: str, why: str) -> None:
        """Report if a member counts, or no longer does."""
        row = self.rows.get(name)
        lives = row is not None and row.lives and name not in self.bfd.aside
        if lives != (name in self._shown):
            self._shown ^= {name}
            left = row is not None and row.standing == Standing.LEFT
            self.changes.append(Change(name, lives, why, left))

    def _is_current(self, observer: str) -> bool:
        return observer == self.me or self.rows[observer].standing == Standing.ALIVE

    def _is_sure(self, name: str) -> bool:
        """Not suspected, or only for an agent that restarts."""
        row = self.rows[name]
        return row.standing == Standing.ALIVE or (row.lives and self.bfd.is_there(name, self._is_current))

    def _is_silent(self, name: str) -> bool:
        """Neither its agent answers, though all are asked, nor does this member see its switch."""
        return name in self._silent and not self.bfd.sees(name)

    def _restarts(self, now: float, row: PeerState, name: str) -> bool:
        """Whether its agent may be silent a while longer, since its switch is there, or back in a moment."""
        since = row.suspicion.since if row.suspicion else now
        return self.bfd.restarts(now, name, since, self._is_current)

    # probes

    def _start_probes(self, now: float) -> None:
        timing = self._timing
        targets: list[str] = []
        if now >= self._probe_at:
            self._probe_at = max(self._probe_at + timing.period, now)
            targets += self._targets()
        if now >= self._wander_at and self.rows:
            alone = not self._living()[0]
            self._wander_at = now + (timing.again if alone else timing.wander)
            targets.append(self._next_on_walk())
        for name in targets:
            self._probe(now, name)

    def _probe(self, now: float, name: str) -> None:
        self._number += 1
        self._probes[self._number] = _Probe(name, now)
        ping = Ping(self._number, self.incarnation, self._updates_for(name))
        self._send(name, ping, renew=not self.rows[name].lives)

    def _asks_itself(self, now: float, row: PeerState, name: str) -> bool:
        """Probe a suspect once if this member is not a witness: it may have missed the refutation."""
        suspicion = row.suspicion
        if suspicion is None or suspicion.is_asked or self.me in suspicion.witnesses:
            return False
        suspicion.is_asked = True
        suspicion.delay(self._timing.period)
        self._probe(now, name)
        return True

    def _overdue(self, now: float, number: int, probe: _Probe) -> None:
        row = self.rows.get(probe.target)
        age = now - probe.since
        if row is None or age >= self._timing.period:
            del self._probes[number]
            if row and row.lives:
                accusation = Update(probe.target, row.incarnation, Standing.SUSPECT, self.me)
                self._apply_update(now, accusation)
        elif age >= self._timing.again and not probe.again:
            probe.again = True
            ping = Ping(number, self.incarnation, self._updates_for(probe.target))
            self._send(probe.target, ping, renew=True)
            self._send(probe.target, ping, stream=True)
            if row.lives:
                for relay in self._random_members(self._timing.relays, but=probe.target):
                    telling = self._updates_for(relay, len(probe.target.encode()) + 3)
                    request = Relay(number, self.incarnation, probe.target, telling)
                    self._send(relay, request)

    def _answered(self, number: int) -> None:
        self._probes.pop(number, None)
        relay = self._relayed.pop(number, None)
        if relay:
            who, their_number, _ = relay
            if who in self.rows:
                self._send(who, Ack(their_number, self.incarnation, self._updates_for(who)))

    def _relay(self, now: float, sender: str, message: Relay) -> None:
        if message.target not in self.rows or len(self._relayed) >= RELAYED_MOST:
            return
        self._number += 1
        self._relayed[self._number] = (sender, message.number, now + self._timing.period)
        self._send(message.target, Ping(self._number, self.incarnation, self._updates_for(message.target)))

    def _stalled(self, now: float, gap: float) -> None:
        for probe in self._probes.values():
            probe.since, probe.again = now, False
        for name in self._suspects:
            if suspicion := self.rows[name].suspicion:
                suspicion.delay(gap)
        self.majority.stalled(now, gap)
        self.bfd.stalled(gap)

    def _living(self) -> tuple[list[str], list[str]]:
        if self._ring is None:
            mine = (place(self.me), self.me)
            ring = sorted((row.place, name) for name, row in self.rows.items() if row.lives)
            first = bisect_left(ring, mine)
            names = [name for _, name in ring[first:] + ring[:first]]
            self._ring = (names, names[: self._timing.observed])
        return self._ring

    def _targets(self) -> list[str]:
        return self._living()[1]

    def _next_on_walk(self) -> str:
        if not self._walk:
            self._walk = sorted(self.rows)
            self._random.shuffle(self._walk)
        return self._walk.pop()

    # what is told

    def _spread(self, now: float) -> None:
        timing = self._timing
        if now >= self._gossip_at:
            self._gossip_at = now + timing.gossip
            some = self._random_members(timing.fanout) if self._updates or self.bfd else []
            for name in some:
                self._send(name, Gossip(self.incarnation, self._updates_for(name)))
                self._tell_views([name])
        if now >= self._sync_at:
            self._sync_at = now + timing.sync
            for name in self._random_members(1):
                self._sync(now, name)

    def _sync(self, now: float, name: str) -> None:
        self._syncs = [at for at in self._syncs if now - at < 1]
        row = self.rows[name]
        if len(self._syncs) < SYNCS_PER_SECOND and now - row.synced >= 1:
            self._syncs.append(now)
            row.synced = now
            self._send(name, self._all(asks=True), stream=True)

    def _tell_views(self, to: Iterable[str]) -> None:
        """Send all of them the same, which counts as sent once."""
        if views := self.bfd.next_views(ROOM, len(self.rows) + 1):
            for name in to:
                self._send(name, Gossip(self.incarnation, (), views))

    def _all(self, *, asks: bool) -> Sync:
        rows = [
            Update(name, row.incarnation, Standing.ALIVE if self._is_sure(name) else row.standing)
            for name, row in self.rows.items()
            if row.incarnation >= 0 and (row.standing != Standing.SUSPECT or self._is_sure(name))
        ]
        table = (Update(self.me, self.incarnation, Standing.ALIVE), *rows)
        return Sync(self.incarnation, asks, table, self.bfd.all)

    def _updates_for(self, to: str, used: int = 0) -> tuple[Update, ...]:
        """Rumours for one packet in which `used` bytes are taken, first what is held against its receiver."""
        row = self.rows[to]
        first: tuple[Update, ...] = ()
        if row.standing != Standing.ALIVE and row.incarnation >= 0:
            first = (Update(to, row.incarnation, row.standing),)
        room = ROOM - used - sum(map(size, first))
        # one that may not hear it is not one that was told
        return (
            *first,
            *self._updates.select(room, len(self.rows) + 1, is_sent=row.standing != Standing.SUSPECT),
        )

    def _random_members(self, most: int, but: str = "") -> list[str]:
        living = self._living()[0]
        some = self._random.sample(living, min(most + 1, len(living)))
        return [name for name in some if name != but][:most]

    def _send(
        self,
        to: str,
        message: Message,
        *,
        stream: bool = False,
        renew: bool = False,
        origin: Origin | None = None,
    ) -> None:
        self.out.append(Send(to, message, stream, renew, origin))
