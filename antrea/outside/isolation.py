"""Isolation of a program's parts: one that fails is logged, named in a condition and started again while the program runs.

docs/decisions/0010-isolated-parts.md has which parts may fail alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import describe_error
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

log = klog.logger(__name__)
CONDITION: Final = "PartFailed"
"""Type of the condition of AntreaAgentInfo and AntreaControllerInfo."""
FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0
"""Seconds before a part is started again, doubled with each failure and stretched by chance up to 1.5-fold."""
STEADY_SECONDS: Final = 60.0
"""How long a part has to run after a failure for the condition to go; the next failure is then the first one again."""
MAX_REASON: Final = 200
"""Characters of a reason in the condition."""
MAX_NAMED: Final = 5
"""Failed parts that the condition names."""


class _Failure(NamedTuple):
    reason: str
    times: int
    running_since: float | None
    """None: the part waits to be started again."""


def _ignore() -> None:
    """The default: no listener."""


class Isolation:
    """Runs the parts of one program; `changed` is called when one fails."""

    def __init__(
        self,
        changed: Callable[[], None] = _ignore,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._changed, self._sleep, self._now, self._chance = changed, sleep, now, chance
        self._failures: dict[str, _Failure] = {}
        self._counts: Counter[str] = Counter()

    async def keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run `work` until it returns; whenever it raises, start it again after a pause."""
        pause = FIRST_PAUSE
        try:
            while error := await self._attempt(name, work):
                if self._failures[name].times == 1:
                    pause = FIRST_PAUSE
                wait = self._chance(pause, pause * 1.5)
                log.error(
                    "A part failed; it is started again", error=error, part=name, seconds=round(wait, 1)
                )
                await self._sleep(wait)
                pause = min(pause * 2, MAX_PAUSE)
        finally:
            self._failures.pop(name, None)

    async def _attempt(self, name: str, work: Callable[[], Awaitable[object]]) -> Exception | None:
        """Run `work` once; what it raises, else None."""
        began = self._now()
        if before := self._failures.get(name):
            self._failures[name] = before._replace(running_since=began)
        try:
            await work()
        except Exception as error:  # noqa: BLE001 (the purpose of the class: one task fails alone)
            if self._now() - began >= STEADY_SECONDS:
                self._failures.pop(name, None)
            self._note(name, error)
            return error
        return None

    async def once(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run `work`, which cannot be started again: a failure is logged and counted."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 (the purpose of the class: one task fails alone)
            log.error("A task failed", error=error, task=name)
            self._counts["task"] += 1

    def failed(self) -> str:
        """The parts that failed and have not run for `STEADY_SECONDS` since, with their last reasons; empty: none."""
        names = sorted(name for name, failure in self._failures.items() if not self._is_steady(failure))
        rows = ((name, self._failures[name]) for name in names[:MAX_NAMED])
        text = "; ".join(
            f"{name} failed {'once' if failure.times == 1 else f'{failure.times} times'}, last: {failure.reason}"
            for name, failure in rows
        )
        return f"{text}; and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else text

    def text(self, metric: Metric) -> str:
        """`metric`, in Prometheus' format; empty while nothing has failed."""
        if not self._counts:
            return ""
        return metric.text(Sample(count, {"part": name}) for name, count in sorted(self._counts.items()))

    def _is_steady(self, failure: _Failure) -> bool:
        return failure.running_since is not None and self._now() - failure.running_since >= STEADY_SECONDS

    def _note(self, name: str, error: Exception) -> None:
        self._counts[name] += 1
        times = before.times + 1 if (before := self._failures.get(name)) else 1
        self._failures[name] = _Failure(" ".join(describe_error(error).split())[:MAX_REASON], times, None)
        self._changed()


def failures(program: str) -> Metric:
    """How often parts of `program` failed."""
    return Metric(f"antrea_{program}_part_failure_count", "counter", "ALPHA", "Number of failures of parts that were started again, by part.")  # fmt: skip
