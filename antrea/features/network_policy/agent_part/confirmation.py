"""Deadlines of policies that must be confirmed: they continue while the controller is away, and while no agent runs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.confirmation import TakenBack, deadline_seconds
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, read_bytes
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from antrea.engine import Facts

log = klog.logger(__name__)


def since_boot() -> float:
    """Return seconds since boot, which changes of the Node's clock do not affect, and which the next agent continues."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Deadlines:
    """Deadlines by UID and generation; kept in a file that a reboot removes."""

    def __init__(self, facts: Facts, keep: Path, now: Callable[[], float] = since_boot) -> None:
        self._facts = facts
        self._keep = keep
        self._now = now
        self._ends: dict[str, float] = {}
        self.read()

    def read(self) -> None:
        """Read the deadlines, so that what an earlier agent has reverted stays so from the first flow on."""
        try:
            self._ends = decode_json(read_bytes(self._keep), dict[str, float], str(self._keep))
        except FileNotFoundError:
            return
        except (OSError, Damaged, Invalid) as error:
            log.warning(
                "Deadlines of policies are not known, they begin anew", path=self._keep, err=str(error)
            )
            return
        self._expire()

    async def run(self) -> None:
        """Process deadlines until cancelled."""
        with self._facts.watch(SentPolicy) as changed:
            while True:
                changed.clear()
                wait = await self.turn()
                try:
                    async with asyncio.timeout(wait):
                        await changed.wait()
                except TimeoutError:
                    continue

    async def turn(self) -> float | None:
        """Begin and end deadlines; return the seconds until the next one, if there is any."""
        # a list that is not complete says nothing of the others
        wanted = {} if self._facts.feeds.has(SentPolicy) else dict(self._ends)
        for row in self._facts.all(SentPolicy):
            if limit := deadline_seconds(row.policy):
                key = f"{row.key} {row.policy.metadata.generation}"
                wanted[key] = self._ends.get(key, self._now() + limit)
        if wanted != self._ends:
            self._ends = wanted
            await self._write()
        self._expire()
        now = self._now()
        return min((end - now for end in self._ends.values() if end > now), default=None)

    def _expire(self) -> None:
        now = self._now()
        over = {key for key, end in self._ends.items() if end <= now}
        for row in self._facts.all(TakenBack):
            if row.key not in over:
                self._facts.drop(TakenBack, row.key)
        for key in over:
            if self._facts.get(TakenBack, key) is None:
                policy, _, generation = key.rpartition(" ")
                log.warning("A policy was not confirmed in time, it is taken back", policy=policy)
                self._facts.put(TakenBack(policy, int(generation)), urgent=True)

    async def _write(self) -> None:
        try:
            await asyncio.to_thread(exchange, self._keep, (msgspec.json.encode(self._ends),))
        except OSError as error:
            log.warning("Deadlines of policies are not kept", path=self._keep, err=str(error))
