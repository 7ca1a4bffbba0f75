"""No address is given twice, whatever happens to writes, watches, leaders and objects; each mutant breaks that."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from address_world import POOL_OF, Replica, World, complaints
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.apis.egress_address import EGRESSES
from antrea.engine import Unit
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import AddressRequest, NamedAddress, PendingAllocation
from antrea.features.egress.controller.allocation import UNITS, egress_claim
from antrea.features.external_ip_pool.pool import POOLS
from antrea.outside.kube.address_promise import AddressPromises
from antrea.outside.kube.egress_address_sink import EgressAddressSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.apis.egress_address import EgressAddress
    from antrea.engine import Facts
    from antrea.outside.kube.address_promise import PromisedEntry

NAMES = "abcdef"
STEPS = (
    "make", "make", "make", "remake", "delete", "delete", "name", "clear", "move", "free",
    "pool", "grow", "unpool", "hear", "hear", "hear", "step", "step", "step", "step", "late", "lead", "restart",
)  # fmt: skip


def ranges(pool: str, last: int) -> dict[str, Any]:
    return {"ipRanges": [{"start": f"{POOL_OF[pool]}1", "end": f"{POOL_OF[pool]}{last}"}]}


class Play:
    """One random sequence."""

    def __init__(self, seed: int, world: type[World] = World, **parts: Any) -> None:
        self.rnd = random.Random(seed)
        self.world = world(**parts)
        for pool in POOL_OF:
            self.world.api.make(f"{POOLS}/{pool}", ranges(pool, 3))
        self.world.lead(0)

    def run(self, steps: Sequence[str]) -> list[str]:
        """What is wrong afterwards."""
        try:
            for step in steps:
                getattr(self, step)()
            last = self.rnd.randrange(2)
            self.world.settle(last)
            return complaints(self.world, last)
        finally:
            self.world.close()

    def _path(self) -> str:
        return f"{EGRESSES}/{self.rnd.choice(NAMES)}"

    def _spec(self) -> dict[str, Any]:
        return {"externalIPPool": self.rnd.choice([*POOL_OF])}

    def _old(self, path: str) -> dict[str, Any] | None:
        found = self.world.api.objects.get(path)
        return dict(found["spec"]) if found else None

    def _by_hand(self, path: str, spec: dict[str, Any]) -> None:
        self.world.api.hand.add(path.rpartition("/")[2])
        self.world.api.make(path, spec)

    def make(self) -> None:
        path = self._path()
        if self._old(path) is None:
            self.world.api.make(path, self._spec())

    def delete(self) -> None:
        path = self._path()
        if self._old(path) is not None:
            self.world.api.tell(path, None)
            self.world.api.hand.discard(path.rpartition("/")[2])

    def remake(self) -> None:
        path = self._path()
        if self._old(path) is not None:
            self.world.api.tell(path, None)
            self.world.api.hand.discard(path.rpartition("/")[2])
            self.world.api.make(path, self._spec())

    def name(self) -> None:
        """A user names an address."""
        path, pool = self._path(), self.rnd.choice([*POOL_OF])
        address = f"{POOL_OF[pool]}{self.rnd.randint(1, 6)}"
        if any(
            promise.address == address
            for one in self.world.replicas
            for promise in one.facts.all(PendingAllocation)
        ):
            return
        spec = {"externalIPPool": pool} if self.rnd.random() < 0.7 else {}
        self._by_hand(path, spec | {"egressIP": address})

    def clear(self) -> None:
        path = self._path()
        if (spec := self._old(path)) is not None and spec.get("externalIPPool"):
            spec.pop("egressIP", None)
            self._by_hand(path, spec)

    def move(self) -> None:
        path = self._path()
        if self._old(path) is not None:
            self._by_hand(path, self._spec())

    def free(self) -> None:
        """Its pool no longer concerns it."""
        path = self._path()
        if (spec := self._old(path)) is not None and spec.get("egressIP"):
            self._by_hand(path, {"egressIP": spec["egressIP"]})

    def pool(self) -> None:
        """At times over another one, as if nobody had checked it."""
        pool = self.rnd.choice([*POOL_OF])
        of = pool if self.rnd.random() < 0.8 else "p"
        if f"{POOLS}/{pool}" not in self.world.api.objects:
            self.world.api.make(f"{POOLS}/{pool}", ranges(of, self.rnd.randint(1, 4)))

    def grow(self) -> None:
        pool = self.rnd.choice([*POOL_OF])
        if found := self.world.api.objects.get(f"{POOLS}/{pool}"):
            spans = [*found["spec"]["ipRanges"], {"start": f"{POOL_OF[pool]}5", "end": f"{POOL_OF[pool]}5"}]
            self.world.api.make(f"{POOLS}/{pool}", {"ipRanges": spans[:2]})

    def unpool(self) -> None:
        path = f"{POOLS}/{self.rnd.choice([*POOL_OF])}"
        if path in self.world.api.objects:
            self.world.api.tell(path, None)

    def hear(self) -> None:
        self.rnd.choice(self.world.replicas).hear(self.rnd.randint(1, 4))

    def step(self) -> None:
        kinds = ("now", "now", "lost", "late", "late", "refused")
        self.world.outcomes = [self.rnd.choice(kinds) for _ in range(8)]
        self.rnd.choice(self.world.replicas).step()

    def late(self) -> None:
        self.world.end_of_late(lost=self.rnd.random() < 0.5)

    def lead(self) -> None:
        self.world.lead(self.rnd.randrange(2))

    def restart(self) -> None:
        self.world.restart(self.rnd.randrange(2))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=80))
def test_no_address_is_given_twice_and_whoever_can_have_one_has_one(seed: int, steps: list[str]) -> None:
    assert Play(seed).run(steps) == []


class Forgetful(EgressAddressSink):
    """Writes without a promise."""

    async def apply(self, put: Sequence[EgressAddress], drop: Sequence[EgressAddress]) -> None:
        self._promises = Promiseless(self._kube, self._facts)
        await super().apply(put, drop)


class Promiseless(AddressPromises):
    """Promises nothing."""

    def promise(self, entry: PromisedEntry) -> str:
        return ""


class Hasty(EgressAddressSink):
    """Breaks a promise although its write may still come through."""

    async def apply(self, put: Sequence[EgressAddress], drop: Sequence[EgressAddress]) -> None:
        try:
            await super().apply(put, drop)
        finally:
            for promise in self._facts.all(PendingAllocation):
                self._facts.drop(PendingAllocation, promise.owner)


def unpromised(facts: Facts, egress: EgressRow) -> Iterator[NamedAddress | AddressRequest]:
    """As the unit, but what is being written does not count."""
    yield from (
        row for row in egress_claim(facts, egress) if not (isinstance(row, NamedAddress) and row.promised)
    )


class Fenceless(World):
    """Leads while writes of the one before are still on their way."""

    def end_of_late(self, *, lost: bool = False) -> None:
        if lost:
            super().end_of_late(lost=True)
        elif len(self.api.late) > 2:
            self.api.late.pop(0)()


class Deaf(World):
    """Leads before it has heard what others wrote."""

    def hear_all(self, chosen: Replica) -> None:
        chosen.hear(2)


UNPROMISED = (Unit(EgressRow, unpromised, yields=(NamedAddress, AddressRequest)), *UNITS[1:])
BUSY = ("make", "make", "remake", "delete", "grow", "hear", "hear", "step", "step", "step", "late", "lead")


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param({"units": UNPROMISED}, id="promise not looked at"),
        pytest.param({"world": Fenceless}, id="no fence"),
        pytest.param({"world": Deaf}, id="no catching up"),
    ],
)
@pytest.mark.untraced
def test_each_part_that_guards_addresses_is_needed(mutant: dict[str, Any]) -> None:
    assert any(
        Play(seed, **mutant).run(random.Random(seed).choices(BUSY, k=60)) for seed in range(1300, 1500)
    )


def overtaken(sink: type[EgressAddressSink]) -> list[str]:
    """A write is late; meanwhile a lower address is freed and a second Egress wants one."""
    world = World(sink)
    leader = world.replicas[0]

    def happen(*outcomes: str) -> None:
        leader.hear(len(world.api.events))
        world.outcomes = [*outcomes]
        leader.step()

    try:
        world.api.make(f"{POOLS}/p", ranges("p", 2))
        world.api.make(f"{EGRESSES}/first", {"externalIPPool": "p"})
        world.lead(0)
        happen("now")
        world.api.make(f"{EGRESSES}/slow", {"externalIPPool": "p"})
        happen("late")
        world.api.tell(f"{EGRESSES}/first", None)
        world.api.make(f"{EGRESSES}/quick", {"externalIPPool": "p"})
        happen("refused", "now", "refused", "refused", "refused")
        world.end_of_late()
        world.settle(0)
        return complaints(world, 0)
    finally:
        world.close()


def test_an_address_that_is_on_its_way_to_one_egress_is_not_offered_to_another() -> None:
    assert overtaken(EgressAddressSink) == []


@pytest.mark.parametrize("sink", [Forgetful, Hasty])
def test_without_a_promise_that_is_kept_an_address_is_given_twice(sink: type[EgressAddressSink]) -> None:
    assert overtaken(sink) == ["10.0.0.2: slow and quick"]
