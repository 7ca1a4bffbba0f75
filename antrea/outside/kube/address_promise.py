"""Promises of addresses of pools: none is written for two owners, of whatever kinds.

Units do not see writes under way, so sinks record them: an address is promised, as a fact, before it is written, and it is
written only into the version that was read, with a timeout of two seconds at kube-apiserver. No other owner gets it before this
one is received in a later version.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

from antrea.apis.crd.part import CrdStruct, Metadata
from antrea.errors import Refused, Unavailable
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import PendingAllocation, PooledService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from antrea.engine import Facts
    from antrea.outside.kube.client import Kube

POOLS = "/apis/crd.antrea.io/v1beta1/externalippools"
E = TypeVar("E")
MAX_CONCURRENT = 8
"""Owners that are written at the same time."""
WITHIN_SECONDS = 2
"""The API server has written by then, or will not: see `antrea/controller/leader/fencing.py`."""


class HeadSpec(CrdStruct, frozen=True):
    """A pool's and a Service's have nothing of it."""

    egress_ips: tuple[str, ...] = ()


class Head(CrdStruct, frozen=True):
    """Fields read of an owner or a pool before something is written."""

    metadata: Metadata = Metadata()
    spec: HeadSpec = HeadSpec()


class PromisedEntry(Protocol):
    """An entry that writes an address of a pool for its owner."""

    @property
    def owner(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def address(self) -> str: ...


class JudgedEntry(Protocol):
    """An entry that takes an address away, by what a pool was."""

    @property
    def pool(self) -> str: ...

    @property
    def pool_uid(self) -> str: ...

    @property
    def pool_generation(self) -> int: ...


class AddressPromises:
    """Promises of one sink; the facts have those of all."""

    def __init__(self, kube: Kube, facts: Facts) -> None:
        self._kube, self._facts = kube, facts
        self._unknown_until: dict[str, float] = {}
        """Owner -> when a write of unknown outcome has come through or never will, by the loop's clock."""

    def clean(self) -> None:
        """Drop those that nothing can fulfil any more."""
        for promise in self._facts.all(PendingAllocation):
            if not self._stands(promise):
                self._facts.drop(PendingAllocation, promise.owner)

    def promise(self, entry: PromisedEntry) -> str:
        """Promise the address to the entry's owner; why not, if it cannot be."""
        facts, owner = self._facts, entry.owner
        if not entry.address:
            return ""
        if other := next(self._others(entry), ""):
            # it was named by hand after it was promised: another is looked for
            self.withdraw(entry)
            return f"{entry.address} is named by {other}"
        mine = facts.get(PendingAllocation, owner)
        if mine and mine.stands(entry.uid, entry.generation) and mine.address != entry.address:
            return f"{mine.address} is being written"
        for promise in facts.by(PendingAllocation, "address", entry.address):
            if promise.owner != owner and self._stands(promise):
                return f"{entry.address} is promised to {promise.owner}"
        facts.put(PendingAllocation(owner, entry.uid, entry.generation, entry.address))
        return ""

    def _others(self, entry: PromisedEntry) -> Iterator[str]:
        for egress in self._facts.by(EgressRow, "address", entry.address):
            if egress.owner != entry.owner:
                yield f"Egress {egress.name}"
        for service in self._facts.by(PooledService, "address", entry.address):
            if service.owner != entry.owner.partition(" ")[0]:
                yield f"Service {service.key}"

    def withdraw(self, entry: PromisedEntry) -> None:
        """Withdraw the promise, unless the outcome of a write is unknown and it may still arrive."""
        if asyncio.get_running_loop().time() >= self._unknown_until.get(entry.owner, 0.0):
            self._unknown_until.pop(entry.owner, None)
            self._facts.drop(PendingAllocation, entry.owner)

    def unknown(self, entry: PromisedEntry) -> None:
        """The outcome of a write that began before now is unknown."""
        self._unknown_until[entry.owner] = asyncio.get_running_loop().time() + WITHIN_SECONDS

    async def judged_by(self, entry: JudgedEntry) -> bool:
        """Whether the pool is in the API server as it was looked at. Raises Unavailable."""
        pool = await self._kube.get(f"{POOLS}/{entry.pool}", Head)
        uid, generation = (pool.metadata.uid, pool.metadata.generation) if pool else ("", 0)
        return (uid, generation) == (entry.pool_uid, entry.pool_generation)

    def _stands(self, promise: PendingAllocation) -> bool:
        kind, _, key = promise.owner.partition("/")
        row: EgressRow | PooledService | None = (
            self._facts.get(EgressRow, key)
            if kind == "Egress"
            else self._facts.get(PooledService, key.partition(" ")[0])
        )
        return row is not None and promise.stands(row.uid, row.generation)


async def write_promised(
    promises: AddressPromises,
    put: Sequence[E],
    promise: Callable[[E], str],
    write: Callable[[E], Awaitable[str]],
) -> None:
    """Promise all, then write them, some at a time; each returns why not, or "".

    Raises Refused naming all that were, with the words about the first; Unavailable.
    """
    promises.clean()
    promised = [(entry, promise(entry)) for entry in put]
    room = asyncio.Semaphore(MAX_CONCURRENT)

    async def begin(entry: E) -> str:
        async with room:
            try:
                return await write(entry)
            except Refused as error:
                return error.why

    taken = [(entry, why) for entry, why in promised if why]
    right = [entry for entry, why in promised if not why]
    answers = await asyncio.gather(*map(begin, right), return_exceptions=True)
    for broken in answers:
        if isinstance(broken, BaseException):
            raise broken
    refused = taken + [(entry, str(why)) for entry, why in zip(right, answers, strict=True) if why]
    if refused:
        raise Refused([entry for entry, _ in refused], refused[0][1])


def lost_term() -> Unavailable:
    """Return the error of a sink whose replica no longer leads."""
    return Unavailable("this replica does not lead")
