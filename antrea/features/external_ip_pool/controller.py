"""ExternalIPPool in the controller: who has which address, who may have which, and how full a pool is.

A kind that takes addresses derives `Named` and `Seeker` rows, acts on its `Offer`, and tells people of its `Held`.
Nothing is remembered but what the objects themselves say and what is being written (`Promise`), so a controller that
starts, or begins to lead, finds every address with whom it was.
parity: pkg/controller/externalippool/controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.external_ip import Held, Leads, Named, Offer, Seeker, Taken, Used
from antrea.features.controller import ControllerFeature
from antrea.features.external_ip_pool.address import BLOCK, free, read, total, usable
from antrea.features.external_ip_pool.pool import POOLS, WATCHED, PoolRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

MANAGER = "antrea-controller"


def taken(_: Facts, named: Named) -> Iterator[Taken]:
    """Where offers look."""
    if address := read(named.address):
        yield Taken(address.version, int(address) // BLOCK, (int(address),))


def held(facts: Facts, named: Named) -> Iterator[Held | Used]:
    """The oldest of those that name an address of their pool has it."""
    pool = facts.get(PoolRow, named.pool) if named.pool and not named.promised else None
    address = read(named.address)
    if pool is None or address is None or not usable(pool.spans, address):
        return
    if first(facts, named.pool, named.address) == named.owner:
        yield Held(named.owner, named.pool, named.address)
        yield Used(address.version, int(address) // BLOCK, (int(address),), pool=named.pool)


def first(facts: Facts, pool: str, address: str) -> str:
    """The oldest of those that name this address of their pool; empty if nobody does."""
    rivals = [row for row in facts.by(Named, "address", address) if row.pool == pool and not row.promised]
    return min(((row.since, row.owner) for row in rivals), default=("", ""))[1]


def offers(facts: Facts, pool: PoolRow) -> Iterator[Offer]:
    """To each seeker what it was promised, or else, the oldest first, the lowest address that nobody names, nor the router has."""
    seekers = facts.by(Seeker, "pool", pool.name)
    if not seekers:
        return  # and is not woken by those that have theirs

    def block(family: int, number: int) -> frozenset[int]:
        row = facts.get(Taken, Taken(family, number).key)
        return frozenset(row.parts if row else ())

    left = (address for address in free(pool.spans, block) if address != pool.gateway)
    for seeker in sorted(seekers, key=lambda row: (row.since, row.owner)):
        promised = facts.by(Named, "promised", seeker.owner)
        address = promised[0].address if promised else next(left, "")
        yield Offer(seeker.owner, pool.name, address)


def usage(facts: Facts, pool: PoolRow) -> Iterator[Status]:
    """As `kubectl get externalippool` shows it, 0 included."""
    if facts.get(Leads) is None:
        return
    used = sum(len(row.parts) for row in facts.by(Used, "pool", pool.name))
    fields = (("usage.total", total(pool.spans)), ("usage.used", used))
    yield Status(path=f"{POOLS}/{pool.name}", kind="ExternalIPPool", manager=MANAGER, fields=fields)


FEATURE = ControllerFeature(
    name="ExternalIPPool",
    watched=WATCHED,
    units=(
        Unit(Named, taken, yields=(Taken,)),
        Unit(Named, held, yields=(Held, Used)),
        Unit(PoolRow, offers, yields=(Offer,)),
        Unit(PoolRow, usage),
    ),
    gate="Egress",
)
