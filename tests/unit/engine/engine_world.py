"""A small world for engine tests: Pods, groups and policies, a switch that remembers, and faults on demand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from antrea.engine import REPORT, Act, Engine, Facts, Pace, Record, Sink, Unit
from antrea.errors import Refused
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Sequence

    from antrea.engine.ids import IdRef

QUICK = Pace(first=0.001, most=0.004)
"""Retries come within milliseconds."""


class Pod(Fact, frozen=True):
    name: str
    port: int = 0
    labels: tuple[str, ...] = ()

    indexes = {"label": lambda pod: pod.labels}  # noqa: RUF012

    @property
    def key(self) -> str:
        return self.name


class Policy(Fact, frozen=True):
    name: str
    label: str
    verdict: str = "allow"

    indexes = {"label": lambda policy: (policy.label,)}  # noqa: RUF012

    @property
    def key(self) -> str:
        return self.name


class Member(Fact, frozen=True):
    """Derived: a Pod that a policy selects, with the policy's number."""

    policy: str
    pod: str
    port: int
    conjunction: int

    indexes = {"pod": lambda member: (member.pod,)}  # noqa: RUF012

    @property
    def key(self) -> str:
        return f"{self.policy}/{self.pod}"


class Setting(Fact, frozen=True):
    tunnel: str = "geneve"


class Flow(msgspec.Struct, frozen=True):
    """An entry in the middle; conjunctions unite."""

    match: str
    actions: tuple[str, ...] = ()
    category: int = 0
    rank: int = 50
    timeout: int = 0

    @property
    def key(self) -> Hashable:
        return self.match

    @property
    def parts(self) -> tuple[str, ...]:
        return self.actions if all(action.startswith("conj") for action in self.actions) else ()

    def with_parts(self, parts: tuple[str, ...]) -> Flow:
        return msgspec.structs.replace(self, actions=parts)


class Snat(msgspec.Struct, frozen=True):
    """What receives packets that flows send."""

    mark: int
    ip: str
    category: ClassVar[int] = 1
    rank: ClassVar[int] = 10

    @property
    def key(self) -> Hashable:
        return self.mark


class Route(msgspec.Struct, frozen=True):
    """What sends packets to flows."""

    dst: str
    category: ClassVar[int] = 2
    rank: ClassVar[int] = 90

    @property
    def key(self) -> Hashable:
        return self.dst


class Status(msgspec.Struct, frozen=True):
    """What only tells people."""

    name: str
    text: str
    category: ClassVar[int] = 3
    rank: ClassVar[int] = REPORT
    forgets: ClassVar[bool] = True

    @property
    def key(self) -> Hashable:
        return self.name


class Announce(Act, frozen=True):
    port: int = 0


def pod_flow(facts: Facts, pod: Pod) -> Iterator[Any]:
    """Own entries, one shared by all Pods of a label, one per Setting."""
    setting = facts.get(Setting)
    yield Flow(f"in_port={pod.name}", (f"output:{pod.port}", setting.tunnel if setting else "none"))
    for label in pod.labels:
        yield Flow(f"label={label}", ("drop",))
    yield Route(pod.name)


def members(facts: Facts, policy: Policy) -> Iterator[Any]:
    conjunction = facts.id("conjunction", policy.name)
    yield Snat(conjunction, policy.name)
    for pod in facts.by(Pod, "label", policy.label):
        yield Member(policy.name, pod.name, pod.port, conjunction)


def member_flow(facts: Facts, member: Member) -> Iterator[Any]:
    """Unites per port: several policies select the same Pod."""
    yield Flow(f"port={member.port}", (f"conj({member.conjunction})",))


def pod_status(facts: Facts, pod: Pod) -> Iterator[Any]:
    policies = [member.policy for member in facts.by(Member, "pod", pod.name)]
    yield Status(pod.name, ",".join(policies))


def label_route(facts: Facts, label: str) -> Iterator[Any]:
    """Shared by all Pods of a label, whatever policies think of it."""
    verdicts = [policy.verdict for policy in facts.by(Policy, "label", label)]
    yield Route(f"{label} {','.join(verdicts)}")


def selected(facts: Facts, pod: str) -> Iterator[Any]:
    """Shared by all policies that select a Pod."""
    yield Snat(1000 + int(pod[1:]), pod)


UNITS = (
    Unit(Pod, pod_status),
    Unit(Member, member_flow),
    Unit(Policy, members, (Member,)),
    Unit(Pod, pod_flow),
)
MORE = (*UNITS, Unit(Pod, label_route, by="label"), Unit(Member, selected, by="pod"))
"""Also over what rows share."""


def chain(facts: Facts, pod: Pod) -> Iterator[Any]:
    """One entry of every rank."""
    yield Route(pod.name)
    yield Flow(pod.name, (f"output:{pod.port}",))
    yield Snat(pod.port, pod.name)


def flow(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Flow(pod.name, (f"output:{pod.port}",))


def status(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Status(pod.name, str(pod.port))


CHAIN = (Unit(Pod, chain),)


def faulty(units: Iterable[Unit], fault: Callable[[], None]) -> tuple[Unit, ...]:
    """The same units, which call `fault` before each item and at the end."""

    def wrap(unit: Unit) -> Unit:
        @functools.wraps(unit.entries)
        def entries(facts: Facts, row: Any) -> Iterator[Any]:
            for item in unit.entries(facts, row):
                fault()
                yield item
            fault()

        return Unit(unit.over, entries, unit.yields, unit.by)

    return tuple(wrap(unit) for unit in units)


class Switch:
    """A sink in memory. `on_call` may raise before anything is applied, `on_entry` in the middle of a call."""

    def __init__(self) -> None:
        self.state: dict[Hashable, Any] = {}
        self.whole = False
        self.calls: list[tuple[Any, ...]] = []
        self.on_call: Callable[[], None] = lambda: None
        self.on_entry: Callable[[Any], None] = lambda entry: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.sweep_gate = asyncio.Event()
        self.sweep_gate.set()

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        self.calls.append(("apply", [e.key for e in put], [e.key for e in drop]))
        await self._take(put, drop)

    async def resync(self, entries: Sequence[Any]) -> None:
        self.calls.append(("resync", sorted((e.key for e in entries), key=str)))
        await self._take(entries, ())

    async def sweep(self, category: int) -> None:
        self.on_call()
        self.calls.append(("sweep", category))
        await self.sweep_gate.wait()

    async def _take(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        await self.gate.wait()
        self.on_call()
        for entry in put:
            self.on_entry(entry)
            self.state[type(entry), entry.key] = entry
        for entry in drop:
            self.on_entry(entry)
            self.state.pop((type(entry), entry.key), None)

    def refuse(self, *keys: Hashable) -> None:
        """Say a known no to these keys, from now on."""

        def on_entry(entry: Any) -> None:
            if entry.key in keys:
                raise Refused([entry], f"{entry.key} is too big")

        self.on_entry = on_entry


class Notebook:
    """A journal in memory; `broken` makes appends fail."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records = list(records)
        self.fault: Callable[[], None] = lambda: None

    def read(self) -> list[Record]:
        return list(self.records)

    def append(self, record: Record) -> None:
        self.fault()
        self.records.append(record)

    def rewrite(self, records: Iterable[Record]) -> None:
        self.records = list(records)

    @classmethod
    def of(cls, numbers: dict[IdRef, int]) -> Notebook:
        return cls(Record(pool, key, number) for (pool, key), number in numbers.items())


def random_write(rnd: random.Random, facts: Facts) -> None:
    """One write of a feed: a Pod, a policy or the setting comes, changes or goes."""
    n, labels = rnd.randrange(6), tuple(rnd.sample("abc", rnd.randrange(3)))
    row = rnd.choice(
        [
            Pod(f"p{n}", rnd.randrange(4), labels),
            Pod(f"p{n}", rnd.randrange(4), labels),
            Policy(f"n{n}", rnd.choice("abc")),
            Setting(rnd.choice(["geneve", "vxlan"])),
        ]
    )
    if rnd.random() < 0.35:
        facts.drop(type(row), row.key, urgent=rnd.random() < 0.2)
    else:
        facts.put(row, urgent=rnd.random() < 0.2)


def from_scratch(facts: Facts, units: Iterable[Unit] = MORE) -> dict[Any, Any]:
    """What a new engine wants for the same rows and numbers."""
    fresh = Facts(Notebook.of(facts.ids.standing()))
    for kind in (Pod, Policy, Setting):
        for row in facts.all(kind):
            fresh.put(row)
    engine = Engine(fresh, units)
    engine.plan()
    return engine.standing()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for `condition`; raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (any condition, also of a state that has no event)
            await asyncio.sleep(0.001)


class World:
    """Facts, the running engine and its switches: `flows` for Flow, `host` for Snat and Route, `api` for Status."""

    def __init__(self, units: Iterable[Unit], facts: Facts, **options: Any) -> None:
        self.facts = facts
        self.flows, self.host, self.api = Switch(), Switch(), Switch()
        self.flows.whole = options.pop("whole", False)
        sinks: dict[type, Sink] = {Flow: self.flows, Snat: self.host, Route: self.host, Status: self.api}
        self.engine = Engine(facts, units, sinks, pace=options.pop("pace", QUICK), **options)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.engine.run())

    @property
    def state(self) -> dict[Any, Any]:
        return {**self.flows.state, **self.host.state, **self.api.state}


Run = Callable[..., World]


@asynccontextmanager
async def worlds() -> AsyncIterator[Run]:
    """Gives `world(units, start=True, **options)`, which makes one; ends what was started."""
    made: list[World] = []

    def make(
        units: Iterable[Unit] = UNITS, *, facts: Facts | None = None, start: bool = True, **options: Any
    ) -> World:
        made.append(World(units, facts or Facts(), **options))
        if start:
            made[-1].start()
        return made[-1]

    yield make
    for one in made:
        if one.task is not None:
            one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)
