"""Whether this member is with the majority, and long enough: a minority never takes an address.

Half of all is a majority if the first by name is among them: of two halves exactly one is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from antrea.outside.gossip.peer import PeerState
    from antrea.outside.gossip.suspicion import Timing


def is_majority(some: Collection[str], everyone: Collection[str]) -> bool:
    """Whether `some` of `everyone` may act for all."""
    twice = 2 * len(some)
    return twice > len(everyone) or (twice == len(everyone) and min(everyone) in some)


class QuorumTracker:
    """`has` is true from `settle` seconds after there is a majority until there is none."""

    def __init__(self, timing: Timing, now: float) -> None:
        self.has = False
        self.heard = now
        """Time of the last message of any peer."""
        self._timing = timing
        self._since: float | None = None
        """Since when there has been a majority; None: there is none."""
        self._sure_at = now
        """When there was a majority of unsuspected members last."""
        self._sure = self._maybe = self._sole = True
        """Whether these are a majority: unsuspected members, all living ones that are not silent, this one."""

    def count(
        self,
        me: str,
        rows: Mapping[str, PeerState],
        is_sure: Callable[[str], bool],
        is_silent: Callable[[str], bool],
    ) -> None:
        """Members have changed; of some that live there is doubt, and some do not answer."""
        everyone = {me, *rows}
        sure = {me, *filter(is_sure, rows)}
        maybe = {me, *(name for name, row in rows.items() if row.lives and not is_silent(name))}
        self._sure, self._maybe, self._sole = (is_majority(some, everyone) for some in (sure, maybe, {me}))

    def update(self, now: float) -> None:
        """Evaluate the quorum at this time."""
        timing = self._timing
        if self._sure:
            self._sure_at = now
        alone = now - self.heard > timing.alone and not self._sole
        if alone or not self._maybe or now - self._sure_at > timing.grace:
            self._since = None
        elif self._since is None and self._sure:
            self._since = now
        self.has = self._since is not None and now - self._since >= timing.settle

    def restart(self, now: float) -> None:
        """Others took this member for dead and may act for it: it begins anew."""
        self._since, self.has = now, False

    def stalled(self, now: float, gap: float) -> None:
        """This process did not run for `gap` seconds."""
        if gap >= self._timing.suspicion_least:
            self.restart(now)
        else:
            self.heard += gap
            self._sure_at += gap
