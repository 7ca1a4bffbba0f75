"""Observations by BFD of other members' switches, combined with gossip.

BFD notices within 0.5 s that a switch is silent, but alone it is not proof: at 5 % loss it errs, and a switch may be
restarting. So a member counts by what most of its observers see, and by whether its agent still answers:

| Switch, by most observers | Agent, by gossip | Verdict |
|---|---|---|
| up | silent; its kernel refuses connections | its agent is restarting: it lives for Timing.restart |
| up | silent; its kernel refuses none | its agent hangs: it is dead after Timing.hung |
| down | silent | it is dead, after Timing.answer |
| down | answers | its switch is restarting: it is set aside after Timing.switch, until the switch is up |
| down | has just begun to listen | the same, without delay |
| down | announced a restart, switch and all | it lives for Timing.restart, as long as its kernel answers |
| without an observer | any | gossip alone decides |

Who is unsure, because his session comes up again, is one of the observers: one who errs beside him is not most of them.
If so many are down that they are not a minority of those seen, it is BFD that fails: no member is set aside.

A member announces its restart by a view of itself that is unsure: for members of a version before,
that is one more observer without a result yet. It is over when the switch was down and is up again (graceful restart, RFC 3623).

No process listens at the gossip port of a Node whose agent restarts, so its kernel resets connections (RFC 9293, 3.5.2); for one
that is stopped or deadlocked the kernel still accepts them, until its backlog is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.outside.gossip.broadcast_queue import often
from antrea.outside.gossip.message import LEAP, View, size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from antrea.outside.gossip.suspicion import Timing

OBSERVERS = 16
"""Maximum number of BFD neighbours of a member (antrea/features/egress/agent/bfd.py arranges them in a ring)."""


class AbsentMember:
    """A member that is back in a moment."""

    __slots__ = ("fell", "probed", "sign", "since")

    def __init__(self, now: float) -> None:
        self.since = self.sign = now
        """When this member received it, and when the other one's kernel answered last."""
        self.probed = float("-inf")
        self.fell = False
        """Its switch has been seen down since."""


class SilentAgent:
    """A member whose switch is up and whose agent does not answer."""

    __slots__ = ("judged", "probed")

    def __init__(self) -> None:
        self.probed = self.judged = float("-inf")
        """Times at which its kernel was last probed and its silence last judged."""


class BfdViews:
    """All views that this member has."""

    def __init__(self, me: str, timing: Timing) -> None:
        self._me = me
        self._timing = timing
        self._number = 0
        self._views: dict[str, dict[str, View]] = {}
        """Views by node and observer."""
        self._send_counts: dict[tuple[str, str], int] = {}
        """How often a view, by node and observer, has been sent."""
        self._down: dict[str, float] = {}
        """Members that most observers see down, and since when that is known."""
        self._seen_up: set[str] = set()
        """Members that most observers saw up since this process started."""
        self.aside: frozenset[str] = frozenset()
        """Members whose switch has been down for long though their agent answers."""
        self.away: dict[str, AbsentMember] = {}
        """Members that announced a restart; their switches do not count as down."""
        self._silent: dict[str, SilentAgent] = {}
        self._refused: dict[str, float] = {}
        """When the kernels of members refused a connection last."""

    def observe(self, node: str, up: bool | None, *, unsure: bool = False) -> None:
        """Set the view of this member: it sees a switch, does not (False), is `unsure`, or does not observe it any more (None)."""
        self._number += 1
        self._keep(View(self._me, node, self._number, up, unsure))

    def merge(self, view: View, *, is_direct: bool = False) -> None:
        """Merge a view, perhaps of an earlier run of this member, which is overridden; `is_direct`: sent by its observer."""
        held = self._views.get(view.node, {})
        known = held.get(view.observer)
        before = self._number if view.observer == self._me else known.number if known else 0
        if view.number > before + LEAP and not is_direct:
            return
        if is_direct and known and abs(view.number - known.number) > LEAP:
            self._keep(view)
            return
        if view.observer == self._me != view.node:
            if known is None or known.number < view.number:
                self._number = max(self._number, view.number)
                self.observe(view.node, known.up if known else None, unsure=bool(known and known.unsure))
        elif (known.number < view.number) if known else len(held) < OBSERVERS:
            if view.observer == self._me:
                self._number = max(self._number, view.number)
            self._keep(view)

    def keep_only(self, members: Collection[str]) -> None:
        """All others are forgotten."""
        for node in [name for name in self._views if name not in members]:
            del self._views[node]
        for held in self._views.values():
            for observer in [name for name in held if name not in members]:
                del held[observer]
        self._seen_up &= set(members)
        self._refused = {node: at for node, at in self._refused.items() if node in members}
        self.away = {node: away for node, away in self.away.items() if node in self._views}
        self._send_counts = {
            (node, observer): times
            for (node, observer), times in self._send_counts.items()
            if observer in self._views.get(node, {})
        }

    @property
    def all(self) -> tuple[View, ...]:
        """All views, for a member that has none."""
        return tuple(view for held in self._views.values() for view in held.values())

    @property
    def lost(self) -> set[str]:
        """Members whose switch this one saw, and sees no longer."""
        return {node for node, held in self._views.items() if self._me in held and held[self._me].up is False}

    def sees(self, node: str) -> bool:
        """Whether this member sees its switch, or it is back in a moment."""
        view = self._views.get(node, {}).get(self._me)
        return node in self.away or (view is not None and view.up is True)

    def __bool__(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._send_counts)

    def next_views(self, room: int, members: int) -> tuple[View, ...]:
        """Return the views that fit into `room` bytes, sent once more to one of `members`; the least sent go first."""
        views = []
        for node, observer in sorted(self._send_counts, key=lambda key: self._send_counts[key]):
            view = self._views[node][observer]
            if (room := room - size(view)) < 0:
                break
            views.append(view)
            self._send_counts[node, observer] += 1
            if self._send_counts[node, observer] >= often(members):
                del self._send_counts[node, observer]
        return tuple(views)

    def is_there(self, node: str, counts: Callable[[str], bool]) -> bool:
        """Whether most observers that count see its switch, or it is back in a moment."""
        up, down, _ = self._count(node, counts)
        return up > down or node in self.away

    def restarts(self, now: float, node: str, since: float, counts: Callable[[str], bool]) -> bool:
        """Whether its agent, silent since then, may be so a while longer: it is back in a moment, or its switch is up.

        The latter for as long as its kernel refuses connections, which it does not for an agent that hangs.
        """
        if now - since >= self._timing.restart or not self.is_there(node, counts):
            return False
        if node in self.away:
            return True
        self._silent.setdefault(node, SilentAgent()).judged = now
        return now - max(since, self._refused.get(node, since)) < self._timing.hung

    def why_dead(self, node: str, counts: Callable[[str], bool]) -> str:
        """Why it counts as dead, for logs and Events of moves."""
        hangs = self.is_there(node, counts)
        return "its switch is up, but its agent does not answer" if hangs else "no sign of life"

    def down_members(self, now: float, counts: Callable[[str], bool]) -> Iterator[tuple[str, float]]:
        """Yield members whose switch is down, and since when; `counts` tests whether an observer's views are current."""
        before = self._down
        tally = {node: self._count(node, counts) for node in self._views}
        down = {node for node, (up, down, unsure) in tally.items() if down > up + unsure}
        self._await(now, tally, down)
        self._down = {node: before.get(node, now) for node in down - self.away.keys()}
        self._seen_up |= {node for node, (up, down, _) in tally.items() if up > down}
        long = {node for node, since in self._down.items() if now - since >= self._timing.switch}
        # nobody sees a switch down that he has not seen up: who has only just begun to listen came too late for that
        long |= self._down.keys() - self._seen_up
        seen = sum(up + down > 0 for up, down, _ in tally.values())
        self.aside = frozenset(long) if 2 * len(self._down) < seen else frozenset()
        yield from self._down.items()

    def members_to_probe(self, now: float) -> list[str]:
        """Return members that restart or may hang, each once a period: their kernels refuse a connection where no agent listens."""
        period = self._timing.period
        self._silent = {node: silent for node, silent in self._silent.items() if now - silent.judged < period}
        absent: dict[str, AbsentMember | SilentAgent] = {**self._silent, **self.away}
        due = [node for node, member in absent.items() if now >= member.probed + period]
        for node in due:
            absent[node].probed = now
        return [node for node in due if node != self._me]

    def reached(self, now: float, node: str, *, refused: bool = False) -> bool:
        """Its kernel shows that it lives, perhaps as it refused a connection; whether that matters, since its agent may not."""
        if refused:
            self._refused[node] = now
        if away := self.away.get(node):
            away.sign = now
        return away is not None

    def stalled(self, gap: float) -> None:
        """This process did not run for `gap` seconds."""
        self._down = {node: since + gap for node, since in self._down.items()}
        self._refused = {node: at + gap for node, at in self._refused.items()}
        for away in self.away.values():
            away.since, away.sign = away.since + gap, away.sign + gap

    def _await(self, now: float, tally: Mapping[str, tuple[int, int, int]], down: Collection[str]) -> None:
        """Wait for sessions that return within a moment, or until that moment is over."""
        for node, held in self._views.items():
            word = held.get(node)
            if word is None or not word.unsure:
                self.away.pop(node, None)
                continue
            away = self.away.setdefault(node, AbsentMember(now))
            away.fell |= node in down
            is_up = away.fell and tally[node][0] > tally[node][1]
            is_silent = node != self._me and now - away.sign >= self._timing.lifeless
            if now - away.since >= self._timing.restart:
                # for the others, too, and for the member itself, who may have heard it later
                self._keep(View(node, node, word.number + 1, None))
                del self.away[node]
            elif is_up or is_silent:
                # it is kept for its number, so that it counts once
                held[node] = msgspec.structs.replace(word, unsure=False)
                del self.away[node]

    def _keep(self, view: View) -> None:
        self._views.setdefault(view.node, {})[view.observer] = view
        self._send_counts[view.node, view.observer] = 0

    def _count(self, node: str, counts: Callable[[str], bool]) -> tuple[int, int, int]:
        """How many see its switch up, how many down, and how many are unsure."""
        views = [
            view
            for view in self._views.get(node, {}).values()
            if view.observer != node and counts(view.observer)
        ]
        seen = [view.up for view in views]
        return seen.count(True), seen.count(False), sum(view.unsure for view in views)
