"""Rumours that are still to be told: each so often that everybody hears of it, the least told ones first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from antrea.outside.gossip.message import Standing, size

if TYPE_CHECKING:
    from antrea.outside.gossip.message import Rumour

REPEAT = 4
"""Times the decimal logarithm of the number of members. Source: memberlist RetransmitMult"""


def often(members: int) -> int:
    """How many times something is told so that all of so many members hear of it."""
    return REPEAT * math.ceil(math.log10(members + 1))


class _Told:
    __slots__ = ("rumour", "size", "times")

    def __init__(self, rumour: Rumour) -> None:
        self.rumour = rumour
        self.size = size(rumour)
        self.times = 0


class Rumours:
    """At most one of each member, or one of each of its witnesses."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, _Told]] = {}
        """By member and witness."""

    def __bool__(self) -> bool:
        return bool(self._told)

    def add(self, rumour: Rumour) -> None:
        """Tell it; what it overrides is told no longer."""
        held = self._told.get(rumour.node, {})
        same = rumour.standing == Standing.SUSPECT and all(
            one.rumour.standing == Standing.SUSPECT and one.rumour.incarnation == rumour.incarnation
            for one in held.values()
        )
        self._told[rumour.node] = {**(held if same else {}), rumour.witness: _Told(rumour)}

    def forget(self, node: str) -> None:
        """Tell nothing of it any more."""
        self._told.pop(node, None)

    def take(self, room: int, members: int, *, is_told: bool = True) -> list[Rumour]:
        """What fits into `room` bytes, told once more to one of `members`, if that one counts."""
        if not self._told:
            return []
        most = often(members)
        found: list[Rumour] = []
        for told in sorted((one for held in self._told.values() for one in held.values()), key=_times):
            if told.size > room:
                continue
            room -= told.size
            found.append(told.rumour)
            told.times += is_told
            if told.times >= most:
                self._done(told.rumour)
        return found

    def _done(self, rumour: Rumour) -> None:
        held = self._told[rumour.node]
        del held[rumour.witness]
        if not held:
            del self._told[rumour.node]


def _times(told: _Told) -> int:
    return told.times
