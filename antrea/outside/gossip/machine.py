"""One agent's gossip without sockets and clock: SWIM in sealed channels. Tests run it in virtual time.

Each member also sends the networks in which neighbours do not answer it to all others, repeatedly as long as there are any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Invalid
from antrea.outside.gossip.channel import Channels, OutgoingMessage
from antrea.outside.gossip.message import Carried, Silence, decode_message, encode
from antrea.outside.gossip.suspicion import Timing
from antrea.outside.gossip.swim import ROOM, Swim

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from random import Random

    from antrea.outside.gossip.channel import SealedPacket
    from antrea.outside.gossip.crypto import Token
    from antrea.outside.gossip.swim import Change, Origin

MAX_BATCH: Final = 4
"""Times that a new list is sent soon."""
SOON_SECONDS: Final = 0.25
AGAIN_SECONDS: Final = 10.0
AFTERWARDS: Final = 6
"""Times that it is sent again when there are none any more."""


class SilentNetworks:
    """Silent networks that this member and others report."""

    def __init__(self) -> None:
        self.reports: dict[str, tuple[str, ...]] = {}
        """Reports by member."""
        self.changed: set[str] = set()
        """Members whose report is new; the reader empties it."""
        self._own: tuple[str, ...] | None = None
        self._sent = 0
        """Times, of the present list."""
        self._most = 0
        self._due = 0.0

    def observe(self, now: float, networks: tuple[str, ...]) -> None:
        """This member's from now on."""
        if networks != self._own:
            self._most = MAX_BATCH + AFTERWARDS * (self._own is not None)
            self._own, self._sent, self._due = networks, 0, now

    def merge(self, sender: str, networks: tuple[str, ...]) -> None:
        """Record a member's report of itself."""
        if self.reports.get(sender) != networks:
            self.reports[sender] = networks
            self.changed.add(sender)

    def keep_only(self, members: Collection[str]) -> None:
        """All others are forgotten."""
        self.reports = {name: networks for name, networks in self.reports.items() if name in members}
        self.changed &= self.reports.keys()

    def due_report(self, now: float) -> Silence | None:
        """Return the report that is due for all members."""
        if self._own is None or now < self._due or (not self._own and self._sent >= self._most):
            return None
        self._sent += 1
        self._due = now + (SOON_SECONDS if self._sent < MAX_BATCH else AGAIN_SECONDS)
        return Silence(self._own)


class Packet(NamedTuple):
    """Packet for the transport to send."""

    to: str
    data: bytes
    stream: bool = False
    """Over TCP."""
    origin: Origin | None = None
    """The connection it answers on, if it is still there."""


class Machine:
    """Events in: `keys`, `peers`, `packet`, `tick`. Out: `take`, and `silence`."""

    def __init__(
        self, me: str, *, random: Random, token: Token, now: float = 0.0, timing: Timing | None = None
    ) -> None:
        """`token` makes secrets, `random` chooses members."""
        self.swim = Swim(me, random, timing or Timing(), now)
        self.silence = SilentNetworks()
        self.channels = Channels(me, token)
        self.carried: list[tuple[str, Carried]] = []
        """Messages that members sent for features, in order; the reader empties it."""
        self._ready: list[Packet] = []

    def keys(self, keys: Sequence[bytes]) -> None:
        """Shared keys, the first one for sealing. Without any, this agent is silent and deaf."""
        self.channels.keys(keys)

    def peers(self, names: Collection[str]) -> None:
        """Every other agent that may be."""
        self.channels.peers([name for name in names if name != self.swim.me])
        self.swim.peers(names)
        self.silence.keep_only(self.swim.rows)

    def packet(self, now: float, data: bytes, origin: Origin | None = None) -> bool:
        """Take a datagram, or a frame of the TCP connection `origin`; return whether it proves that its sender has a key, and now."""
        heard = self.channels.open(data)
        self._put(heard.sender, heard.send, origin)
        if heard.text is None:
            return False
        try:
            message = decode_message(heard.text)
        except Invalid:
            self.channels.dropped["unreadable"] += 1
            return True
        if isinstance(message, Silence):
            if heard.sender in self.swim.rows:
                self.silence.merge(heard.sender, message.networks)
            return True
        if isinstance(message, Carried):
            if heard.sender in self.swim.rows:
                self.carried.append((heard.sender, message))
            return True
        self.swim.received(now, heard.sender, message, origin)
        self._seal(now)
        return True

    def tick(self, now: float) -> None:
        """Every 20 to 50 ms."""
        self.swim.tick(now)
        if silence := self.silence.due_report(now):
            self._broadcast(now, encode(silence))
        self._seal(now)

    def carry(self, now: float, to: str, message: Carried) -> None:
        """Send bytes of a feature to a member that lives; they may be lost."""
        row = self.swim.rows.get(to)
        if row is not None and row.lives:
            sealed = self.channels.send(now, to, OutgoingMessage(encode(message), stream=True))
            self._ready += [Packet(to, packet.data, packet.stream) for packet in sealed]

    def report_bfd(self, now: float, name: str, up: bool | None, *, unsure: bool = False) -> None:
        """BFD found a switch up or down; None: it looks there no more, or is `unsure`."""
        self.swim.report_bfd(name, up, unsure=unsure)
        self._seal(now)

    def reached(self, now: float, name: str, *, refused: bool) -> None:
        """The kernel of a member refused a connection, or took it."""
        if self.swim.bfd.reached(now, name, refused=refused):
            self.swim.majority.heard = now

    def leave(self, now: float) -> None:
        """Announce the leave, so that no member has to suspect."""
        self.swim.leave()
        self._seal(now)

    def pop_output(self) -> tuple[list[Packet], list[Change]]:
        """Take the packets to send and the changes."""
        ready, self._ready = self._ready, []
        changes, self.swim.changes = self.swim.changes, []
        return ready, changes

    def _seal(self, now: float) -> None:
        sends, self.swim.out = self.swim.out, []
        for send in sends:
            text = OutgoingMessage(encode(send.message), send.stream)
            sealed = tuple(self.channels.send(now, send.to, text, renew=send.renew))
            self._ready += [Packet(send.to, packet.data, packet.stream, send.origin) for packet in sealed]

    def _broadcast(self, now: float, text: bytes) -> None:
        """To all living members."""
        is_long = len(text) > ROOM
        for name, row in self.swim.rows.items():
            if row.lives:
                sealed = self.channels.send(now, name, OutgoingMessage(text, is_long))
                self._ready += [Packet(name, packet.data, packet.stream) for packet in sealed]

    def _put(self, to: str, sealed: Sequence[SealedPacket], origin: Origin | None) -> None:
        self._ready += [
            Packet(to, packet.data, packet.stream, origin if packet.answers else None) for packet in sealed
        ]
