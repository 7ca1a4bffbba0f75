"""Messages that are still to be broadcast: each as often as it takes to reach all members, the least sent first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from antrea.outside.gossip.message import Standing, size

if TYPE_CHECKING:
    from antrea.outside.gossip.message import Update

REPEAT = 4
"""Times the decimal logarithm of the number of members. Source: memberlist RetransmitMult"""


def often(members: int) -> int:
    """How many times a message is sent so that it reaches all of so many members."""
    return REPEAT * math.ceil(math.log10(members + 1))


class _Broadcast:
    __slots__ = ("size", "times", "update")

    def __init__(self, update: Update) -> None:
        self.update = update
        self.size = size(update)
        self.times = 0


class BroadcastQueue:
    """At most one of each member, or one of each of its witnesses."""

    def __init__(self) -> None:
        self._broadcasts: dict[str, dict[str, _Broadcast]] = {}
        """Broadcasts by member and witness."""

    def __bool__(self) -> bool:
        return bool(self._broadcasts)

    def add(self, update: Update) -> None:
        """Broadcast it; what it overrides is sent no longer."""
        held = self._broadcasts.get(update.node, {})
        same = update.standing == Standing.SUSPECT and all(
            broadcast.update.standing == Standing.SUSPECT
            and broadcast.update.incarnation == update.incarnation
            for broadcast in held.values()
        )
        self._broadcasts[update.node] = {**(held if same else {}), update.witness: _Broadcast(update)}

    def forget(self, node: str) -> None:
        """Stop sending what concerns it."""
        self._broadcasts.pop(node, None)

    def select(self, room: int, members: int, *, is_sent: bool = True) -> list[Update]:
        """Return the updates that fit into `room` bytes, sent once more to one of `members`, if that one counts."""
        if not self._broadcasts:
            return []
        most = often(members)
        updates: list[Update] = []
        for broadcast in sorted(
            (each for held in self._broadcasts.values() for each in held.values()), key=_times
        ):
            if broadcast.size > room:
                continue
            room -= broadcast.size
            updates.append(broadcast.update)
            broadcast.times += is_sent
            if broadcast.times >= most:
                self._done(broadcast.update)
        return updates

    def _done(self, update: Update) -> None:
        held = self._broadcasts[update.node]
        del held[update.witness]
        if not held:
            del self._broadcasts[update.node]


def _times(broadcast: _Broadcast) -> int:
    return broadcast.times
