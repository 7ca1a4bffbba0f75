"""What does the engine cost: the loop's lag in a pass of 70,000 entries, and one change however much stands?

`python -m benchmarks.engine`. Changes are measured in time of the processor. Figures with a target in seconds are also
stated in loops of known cost (`known_loop`), measured in the same run: on a machine that is slow, or used by others,
these are the figures of the code.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from figure import Against, alternate, show, show_ratio

from antrea.engine import Engine, Facts, Pace, Unit
from antrea.engine.core import IMPLEMENTATION
from antrea.facts.fact import Fact
from benchmarks.known_loop import loop_seconds, loops, name_starved

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

ENTRIES = 70_000
COMPILED_US, PYTHON_US = 15, 30
"""Aimed at for one changed row."""
CHANGES = 100
"""Changes in one measurement; the median of them counts."""


class Pod(Fact, frozen=True):
    name: str
    port: int
    group: str = "web"

    indexes = {"group": lambda pod: (pod.group,)}  # noqa: RUF012

    @property
    def key(self) -> str:
        return self.name


class Hot(Fact, frozen=True):
    """Read by every job."""

    mtu: int


class Member(Fact, frozen=True):
    group: str
    pod: str
    port: int

    @property
    def key(self) -> str:
        return f"{self.group}/{self.pod}"


class Flow(msgspec.Struct, frozen=True):
    match: str
    actions: tuple[str, ...]
    rank: ClassVar[int] = 50
    category: ClassVar[int] = 0

    @property
    def key(self) -> Hashable:
        return self.match


SHARE = 5000
"""Entries that the sink takes before it lets others run, as the switch's does while it writes them as text."""


class Memory:
    """A sink that takes everything, all at once as the switch's does, and keeps it: the engine alone is measured."""

    whole = True

    def __init__(self) -> None:
        self.state: dict[Hashable, Flow] = {}

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        for start in range(0, len(put), SHARE):
            self.state.update((flow.key, flow) for flow in put[start : start + SHARE])
            await asyncio.sleep(0)
        for flow in drop:
            self.state.pop(flow.key, None)
        await asyncio.sleep(0)

    async def resync(self, entries: Sequence[Any]) -> None:
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing is left of an earlier round."""


def own(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Flow(f"in_port={pod.name}", (f"output:{pod.port}",))


def shared(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Flow("group", ("drop",))


def member(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Member(pod.group, pod.name, pod.port)


def bucket(facts: Facts, row: Member) -> Iterator[Any]:
    yield Flow(f"bucket={row.key}", (f"output:{row.port}",))


def hot(facts: Facts, pod: Pod) -> Iterator[Any]:
    setting = facts.get(Hot)
    yield Flow(pod.name, (f"output:{pod.port}", f"mtu:{setting.mtu if setting else 0}"))


OWN, SHARED, HOT = (Unit(Pod, own),), (Unit(Pod, shared),), (Unit(Pod, hot),)
MEMBERS = (Unit(Pod, member, (Member,)), Unit(Member, bucket))


class Lag:
    """Samples in milliseconds, every millisecond: how late the loop comes back, and how much of that it computed itself."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.held: list[float] = []
        """CPU time of this thread only: without what else the machine did meanwhile."""

    async def run(self) -> None:
        """For ever."""
        while True:
            start, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.late.append(1000 * (time.perf_counter() - start) - 1)
            self.held.append(1000 * (time.thread_time() - computed))


def p99(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=100)[98]


async def loaded() -> tuple[Lag, float, float]:
    """The lag while 70,000 entries are computed and applied, then half of them change; seconds of clock and processor."""
    facts, lag = Facts(), Lag()
    engine = Engine(facts, OWN, {Flow: Memory()})
    running, sampling = asyncio.create_task(engine.run()), asyncio.create_task(lag.run())
    await engine.quiet()
    start, begun = time.perf_counter(), time.process_time()
    await feed(facts, [Pod(f"p{n}", n) for n in range(ENTRIES)])
    await engine.quiet()
    await feed(facts, [Pod(f"p{n}", n + 1) for n in range(ENTRIES // 2)])
    await engine.quiet()
    clock, busy = time.perf_counter() - start, time.process_time() - begun
    for task in (running, sampling):
        task.cancel()
    await asyncio.gather(running, sampling, return_exceptions=True)
    return lag, clock, busy


async def feed(facts: Facts, rows: list[Pod]) -> None:
    """As a list of a watch comes: in pages."""
    for start in range(0, len(rows), 500):
        for row in rows[start : start + 500]:
            facts.put(row)
        await asyncio.sleep(0)


async def counting(seconds: float) -> Lag:
    """The lag of a loop that only counts, in slices as long as the engine's: what this machine can do right now."""
    lag, end = Lag(), time.perf_counter() + seconds
    sampling = asyncio.create_task(lag.run())
    while time.perf_counter() < end:
        slice_end = time.perf_counter() + Pace().slice
        while time.perf_counter() < slice_end:
            pass
        await asyncio.sleep(0)
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)
    return lag


def lags() -> None:
    """Loop lag in a pass of 70,000 entries, compared with a loop that only counts in slices of the same length."""
    busy, seconds, calm = list[Lag](), list[float](), list[Lag]()
    waited = loop = 0.0
    for _ in range(5):
        lag, clock, took = asyncio.run(loaded())
        busy.append(lag)
        seconds.append(took)
        waited += clock
        calm.append(asyncio.run(counting(clock)))
        loop = min(loop or loop_seconds(), loop_seconds())
    name_starved(waited, sum(seconds))
    measures: dict[str, tuple[Callable[[Lag], float], float]] = {
        "engine_loop_lag_p99": (lambda lag: p99(lag.late), 20),
        "engine_loop_lag_max": (lambda lag: max(lag.late), 100),
        "engine_loop_held_p99": (lambda lag: p99(lag.held), 20),
        "engine_loop_held_max": (lambda lag: max(lag.held), 100),
    }
    for name, (measure, target) in measures.items():
        counted = Against("counting_loop", tuple(measure(lag) for lag in calm))
        values = [measure(lag) for lag in busy]
        show(name, "ms", values, against=counted, target=target)
        if "held" in name:  # of the processor, as the loop is
            show(f"{name}_loops", "loops", [one / 1000 / loop for one in values], target=loops(target / 1000))
    show("engine_entry", "us", [1e6 * took / (ENTRIES * 1.5) for took in seconds])


class Standing:
    """An engine with `count` Pods, of which one changes, or to which one comes and goes."""

    def __init__(self, units: tuple[Unit, ...], count: int) -> None:
        self._engine = Engine(Facts(), units)
        self._port = 0
        self._engine.facts.put(Hot(1450))
        for n in range(count):
            self._engine.facts.put(Pod(f"p{n}", n))
        self._engine.plan()

    def change(self) -> float:
        """Microseconds of the processor for one change."""
        return statistics.median(self._once() for _ in range(CHANGES))

    def come_and_go(self) -> float:
        """Microseconds of the processor for a row that comes and goes."""
        return statistics.median(self._twice() for _ in range(CHANGES))

    def _once(self) -> float:
        self._port += 1
        start = time.process_time()
        self._engine.facts.put(Pod("p5", self._port + 1_000_000))
        self._engine.plan()
        return 1e6 * (time.process_time() - start)

    def _twice(self) -> float:
        start = time.process_time()
        self._engine.facts.put(Pod("new", 5))
        self._engine.plan()
        self._engine.facts.drop(Pod, "new")
        self._engine.plan()
        return 1e6 * (time.process_time() - start)


def slope(name: str, units: tuple[Unit, ...], large: int, small: int) -> None:
    """One change among many rows compared with one among few."""
    many, few = Standing(units, large), Standing(units, small)
    values = alternate({f"{large}": many.change, f"{small}": few.change})
    show_ratio(f"engine_change_{name}", values, "us", 1.5)
    values = alternate({f"{large}": many.come_and_go, f"{small}": few.come_and_go})
    show_ratio(f"engine_add_del_{name}", values, "us", 1.5)


def one_change() -> None:
    """One changed row, in seconds and in thousandths of a loop."""
    standing = Standing(OWN, 1_000)
    values = alternate({"change": standing.change, "loop": loop_seconds})
    target = COMPILED_US if IMPLEMENTATION == "compiled" else PYTHON_US
    show("engine_change", "us", values["change"], target=target)
    shares = [1e-3 * change / loop for change, loop in zip(values["change"], values["loop"], strict=True)]
    show("engine_change_loops", "loops/1000", shares, target=1000 * loops(target / 1e6))


def main() -> None:
    """All figures, the slopes first."""
    print(f"load average {os.getloadavg()[0]:.1f}; the engine's core runs {IMPLEMENTATION}", flush=True)
    one_change()
    slope("rows", OWN, 10_000, 1_000)
    slope("rows", OWN, 100_000, 1_000)
    slope("sharers", SHARED, 4_000, 10)
    slope("group", MEMBERS, 5_000, 10)
    slope("readers_of_one_fact", HOT, 100_000, 10)
    lags()


if __name__ == "__main__":
    main()
