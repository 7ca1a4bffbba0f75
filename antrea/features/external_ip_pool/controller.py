"""ExternalIPPool in the controller: holders of addresses, candidates for them, and the usage of pools.

A kind that takes addresses derives `NamedAddress` and `AddressRequest` rows, acts on its `AddressOffer`, and reports its
`HeldAddress`. The only state is in the objects themselves and in pending writes (`PendingAllocation`), so a controller that
starts, or begins to lead, finds every address with its holder.
parity: pkg/controller/externalippool/controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.cluster import ClusterNode
from antrea.facts.external_ip import (
    AddressOffer,
    AddressRequest,
    FencedLeadership,
    HeldAddress,
    NamedAddress,
    TakenAddresses,
    UsedAddresses,
)
from antrea.facts.fact import precedence
from antrea.features.external_ip_pool.address import BLOCK, free, total, usable
from antrea.features.external_ip_pool.crd import GATES
from antrea.features.external_ip_pool.pool import POOLS, RANGES_VALID, WATCHED, PoolRow
from antrea.features.framework.address import read
from antrea.features.framework.controller_feature import ControllerFeature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.engine import Facts

MANAGER = "antrea-controller"
RANGES_MANAGER = "antrea-controller-ranges"
KEPT, NAMED, REQUESTED = 0, 1, 2
"""Precedence of a NamedAddress."""


def taken_addresses(_: Facts, named: NamedAddress) -> Iterator[TakenAddresses]:
    """Where offers look."""
    if address := read(named.address):
        yield TakenAddresses(address.version, int(address) // BLOCK, (int(address),))


def held_addresses(facts: Facts, named: NamedAddress) -> Iterator[HeldAddress | UsedAddresses]:
    """Yield the holder of an address, the first that names it, and those that share it."""
    pool = facts.get(PoolRow, named.pool) if named.pool and not named.promised else None
    address = read(named.address)
    if pool is None or address is None or not usable(pool.spans, address):
        return
    if named.owner in holders(facts, named.pool, named.address):
        yield HeldAddress(named.owner, named.pool, named.address)
        yield UsedAddresses(address.version, int(address) // BLOCK, (int(address),), pool=named.pool)


def first(facts: Facts, pool: str, address: str) -> str:
    """The first of those that name this address of their pool; empty if none does."""
    return next(iter(holders(facts, pool, address)), "")


def holders(facts: Facts, pool: str, address: str) -> list[str]:
    """Return the holders of this address of the pool: the first that names it, or all that kept it, and those that share it
    with these.
    """
    rows = facts.by(NamedAddress, "address", address)
    rivals = sorted(
        (row for row in rows if row.pool == pool and not row.promised),
        key=lambda row: (row.claim, precedence(row.since, row.owner)),
    )
    kept = [row for row in rivals if row.claim == KEPT] or rivals[:1]
    if any(row.claim == REQUESTED for row in kept) and any(
        row.promised or row.pool != pool for row in rows if row.owner != kept[0].owner
    ):
        return []  # it may be another's within a moment, or is still announced for another
    others = (row for row in rivals if row not in kept)
    shared = others if all(row.shares for row in kept) else ()
    return [*(row.owner for row in kept), *(row.owner for row in shared if row.shares)]


def offers(facts: Facts, pool: PoolRow) -> Iterator[AddressOffer]:
    """Yield to each requester what it was promised, or else, the oldest first, the lowest free address that is not the router's
    or a Node's.
    """
    seekers = facts.by(AddressRequest, "pool", pool.name)
    if not seekers:
        return  # and is not woken by those that have theirs

    def block(family: int, number: int) -> frozenset[int]:
        row = facts.get(TakenAddresses, TakenAddresses(family, number).key)
        return frozenset(row.parts if row else ())

    def is_of_a_node(address: str) -> bool:
        return bool(facts.by(ClusterNode, "ip", address))

    left = _Left(pool, block, is_of_a_node)
    for seeker in sorted(seekers, key=lambda row: precedence(row.since, row.owner)):
        promised = facts.by(NamedAddress, "promised", seeker.owner)
        address = promised[0].address if promised else left.next(seeker.families)
        yield AddressOffer(seeker.owner, pool.name, address)


class _Left:
    """Addresses of a pool that are neither named nor its router's nor a Node's, each given once."""

    def __init__(
        self,
        pool: PoolRow,
        taken: Callable[[int, int], frozenset[int]],
        is_of_a_node: Callable[[str], bool],
    ) -> None:
        self._pool, self._taken, self._is_of_a_node = pool, taken, is_of_a_node
        self._families = frozenset(span.family for span in pool.spans)
        self._free: dict[tuple[int, ...], Iterator[str]] = {}
        self._gone = {pool.gateway}

    def next(self, families: tuple[int, ...]) -> str:
        """Return the lowest address, of the first of these families that the pool has; empty if there is none."""
        wanted = tuple(family for family in families if family in self._families)[:1]
        if wanted not in self._free:
            spans = (span for span in self._pool.spans if not wanted or span.family in wanted)
            self._free[wanted] = free(spans, self._taken)
        for address in self._free[wanted]:
            if address not in self._gone and not self._is_of_a_node(address):
                self._gone.add(address)
                return address
        return ""


def usage(facts: Facts, pool: PoolRow) -> Iterator[Status]:
    """Yield the usage, as `kubectl get externalippool` shows it, 0 included."""
    if facts.get(FencedLeadership) is None:
        return
    used = sum(len(row.parts) for row in facts.by(UsedAddresses, "pool", pool.name))
    fields = (("usage.total", total(pool.spans)), ("usage.used", used))
    yield Status(path=f"{POOLS}/{pool.name}", kind="ExternalIPPool", manager=MANAGER, fields=fields)


def valid_ranges(facts: Facts, pool: PoolRow) -> Iterator[Status]:
    """Yield a condition as long as ranges of the pool are left out."""
    if facts.get(FencedLeadership) is None or not (pool.invalid or pool.reported_invalid):
        return
    condition = Condition(RANGES_VALID)
    if pool.invalid:
        message = f"no address of these ranges is given, correct them: {pool.invalid}"
        condition = Condition(RANGES_VALID, "False", reason="InvalidRange", message=message)
    yield Status(
        path=f"{POOLS}/{pool.name}", kind="ExternalIPPool", manager=RANGES_MANAGER, conditions=(condition,)
    )


FEATURE = ControllerFeature(
    name="ExternalIPPool",
    watched=WATCHED,
    units=(
        Unit(NamedAddress, taken_addresses, yields=(TakenAddresses,)),
        Unit(NamedAddress, held_addresses, yields=(HeldAddress, UsedAddresses)),
        Unit(PoolRow, offers, yields=(AddressOffer,)),
        Unit(PoolRow, usage),
        Unit(PoolRow, valid_ranges),
    ),
    gate=GATES,
)
FEATURES = (FEATURE,)
