"""A network of real membership machines in virtual time: loss, delay, partitions, pauses, restarts, and an eavesdropper."""

from __future__ import annotations

import heapq
import itertools
from random import Random
from typing import TYPE_CHECKING

from antrea.features.egress.agent.hash_ring import Ring
from antrea.outside.gossip.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from antrea.outside.gossip.machine import Packet

KEY = bytes(range(32))
TICK = 0.05
LATENCY = (0.0002, 0.002)
"""Seconds on the way, from and to."""
NOTICED = (0.16, 0.33)
"""Seconds after which one switch finds another one silent: three packets, 60 ms apart, and the way to the agent."""
STREAM_TRIES = 0.2
"""What TCP waits before it sends again what was lost, at the least."""


class Connection:
    """What a packet came by, if not as a datagram; the answer finds its way by the receiver's name."""

    def send(self, data: bytes) -> None:
        raise AssertionError("the world delivers")


class World:
    """`names` gossip with each other. Times are in virtual seconds."""

    def __init__(
        self, names: Iterable[str], seed: int = 1, *, key: bytes = KEY, udp_blocked: Iterable[str] = ()
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.names = list(names)
        self.loss = 0.0
        self.is_cut: Callable[[str, str], bool] = lambda _one, _other: False
        """Whether packets of one to the other are lost."""
        self.udp_blocked = set(udp_blocked)
        """Whom only TCP reaches, and whose datagrams reach nobody."""
        self.paused: set[str] = set()
        self.bare: set[str] = set()
        """Whose kernel runs without an agent, and refuses connections."""
        self.tapped: list[tuple[str, bytes]] = []
        """Every packet that was sent, and to whom."""
        self.sent, self.octets = 0, 0
        self.longest = 0
        self.events: list[tuple[float, str, str, bool]] = []
        """When, who saw it, whom, alive?"""
        self.key = key
        self.machines: dict[str, Machine] = {}
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._late: dict[str, list[Callable[[], None]]] = {}
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """A new process, which knows nothing of an earlier one; so do its timers."""
        machine = Machine(
            name, random=Random(self.random.random()), token=self.random.randbytes, now=self.now
        )
        machine.keys((self.key,))
        machine.peers(self.names)
        self.machines[name] = machine
        self.paused.discard(name)
        self.bare.discard(name)
        self._late.pop(name, None)
        self._at(self.random.random() * TICK, lambda: self._tick(name, machine))

    def kill(self, name: str) -> None:
        """Power-off."""
        self.machines.pop(name, None)
        self.bare.discard(name)

    def crash(self, name: str) -> None:
        """Its agent ends; its kernel stays: `start` begins the next."""
        self.kill(name)
        self.bare.add(name)

    def roll(self, name: str) -> None:
        """Its Pod is exchanged: it says so, ends 0.3 s later, and its kernel stays; `start` begins the next."""
        self.saw(name, name, None, unsure=True)
        self.run(0.3)
        self.crash(name)

    def pause(self, name: str) -> None:
        """It stops; what arrives waits."""
        self.paused.add(name)

    def resume(self, name: str) -> None:
        """It goes on: what waits comes in first."""
        self.paused.discard(name)
        for one in self._late.pop(name, []):
            one()

    def part(self, *sides: Iterable[str]) -> None:
        """Only members of one side hear each other; none: all do."""
        of = {name: number for number, side in enumerate(sides) for name in side}
        self.is_cut = lambda one, other: of.get(one) != of.get(other)

    def sever(self, *sides: Collection[str]) -> None:
        """Part them, and find switches of other sides down."""
        self.part(*sides)
        for side in sides:
            for node in sorted({name for other in sides for name in other} - set(side)):
                self.see(node, False, *sorted(side), within=NOTICED)

    def see(
        self,
        node: str,
        up: bool | None,
        *observers: str,
        unsure: bool = False,
        within: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """BFD of these, by default all others, finds the switch of `node` up or down, or is unsure, after such a time."""
        for observer in observers or [name for name in self.names if name != node]:
            self._at(
                self.random.uniform(*within),
                lambda observer=observer: self.saw(observer, node, up, unsure=unsure),  # type: ignore[misc]
            )

    def saw(self, observer: str, node: str, up: bool | None, *, unsure: bool = False) -> None:
        """One does so now."""
        if observer in self.machines and (observer != node or unsure):
            self.machines[observer].report_bfd(self.now, node, up, unsure=unsure)
            self._flush(observer, self.machines[observer])

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, event = heapq.heappop(self._queue)
            event()
        self.now = end

    def until(self, condition: Callable[[], bool], within: float) -> float:
        """Let time pass until it holds; how long that was. Fails after `within` seconds."""
        began = self.now
        while not condition():
            assert self.now - began < within, f"not within {within} s: {self.views()}"
            self.run(TICK / 2)
        return self.now - began

    def view(self, name: str) -> set[str]:
        """Whom this member holds for alive, itself among them."""
        return {name} | {other for other, row in self.machines[name].swim.rows.items() if row.lives}

    def views(self) -> dict[str, set[str]]:
        return {name: self.view(name) for name in self.machines}

    def agree(self, *living: str) -> bool:
        """Whether exactly these live, in the view of each of them."""
        return all(self.view(name) == set(living) for name in living)

    def deliver(self, to: str, data: bytes, origin: Connection | None = None) -> None:
        """A packet from anywhere, now; `origin`: by a TCP connection."""
        machine = self.machines.get(to)
        if machine is None:
            return
        if to in self.paused:
            self._late.setdefault(to, []).append(lambda: self.deliver(to, data, origin))
            return
        machine.packet(self.now, data, origin)
        self._flush(to, machine)

    def _at(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._order), event))

    def _tick(self, name: str, machine: Machine) -> None:
        if self.machines.get(name) is not machine:
            return
        if name not in self.paused:
            machine.tick(self.now)
            self._flush(name, machine)
        self._at(TICK, lambda: self._tick(name, machine))

    def _flush(self, name: str, machine: Machine) -> None:
        packets, changes = machine.pop_output()
        self.events += [(self.now, name, change.node, change.alive) for change in changes]
        for packet in packets:
            self._post(name, packet)

    def _post(self, sender: str, packet: Packet) -> None:
        self.sent += 1
        self.octets += len(packet.data)
        if not packet.stream:
            self.longest = max(self.longest, len(packet.data))
        if len(self.tapped) < 20_000:
            self.tapped.append((packet.to, packet.data))
        self._try(sender, packet, STREAM_TRIES if packet.stream or packet.origin else 0.0)

    def _try(self, sender: str, packet: Packet, again: float) -> None:
        blocked = not packet.stream and packet.origin is None and self.udp_blocked & {sender, packet.to}
        if blocked or self.is_cut(sender, packet.to) or self.random.random() < self.loss:
            if again and again < 5:
                self._at(again, lambda: self._try(sender, packet, 2 * again))
            return
        if packet.stream and packet.to in self.bare:
            self._at(
                2 * self.random.uniform(*LATENCY),
                lambda: self.machines[sender].reached(self.now, packet.to, refused=True),
            )
            return
        origin = Connection() if packet.stream or packet.origin else None
        self._at(self.random.uniform(*LATENCY), lambda: self.deliver(packet.to, packet.data, origin))


def acting(world: World) -> set[str]:
    """Who is with a majority, as far as it knows."""
    return {name for name, machine in world.machines.items() if machine.swim.majority.has}


def overlap(world: World, majority: Collection[str], seconds: float) -> float:
    """How much later the last of the others gives up than the first of a majority takes one of them for dead."""
    since, end = len(world.events), world.now + seconds
    gave_up = world.now
    while world.now < end:
        if acting(world) - set(majority):
            gave_up = world.now
        world.run(TICK / 5)
    deaths = [
        when
        for when, who, whom, alive in world.events[since:]
        if who in majority and whom not in majority and not alive
    ]
    return gave_up - min(deaths)


def owners(world: World, address: str = "172.18.181.40") -> set[str]:
    """Who holds itself for the owner of the address."""
    return {name for name in acting(world) if Ring(world.view(name)).pick(address) == name}
