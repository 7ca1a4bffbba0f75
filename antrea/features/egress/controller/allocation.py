"""Addresses of an Egress with ExternalIPPools: requested, allocated, and its status about them.

parity: pkg/controller/egress/controller.go syncEgressIP, updateEgressAllocatedCondition
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.part import Condition
from antrea.apis.egress_address import EGRESSES, EgressAddress
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import (
    AddressOffer,
    AddressRequest,
    FencedLeadership,
    HeldAddress,
    NamedAddress,
    PendingAllocation,
)
from antrea.features.external_ip_pool.controller import MANAGER, first
from antrea.features.external_ip_pool.pool import PoolRow
from antrea.features.framework.address import read
from antrea.features.framework.event import RecordEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.engine import Facts

ALLOCATED = "IPAllocated"
STALE = Condition("Stale")
"""Condition of a type that no status has: an entry with it differs from the one without."""


def egress_claim(facts: Facts, egress: EgressRow) -> Iterator[NamedAddress | AddressRequest]:
    """Yield its addresses, named or pending, which others do not get; one without an address of its pool requests one."""
    pool = facts.get(PoolRow, egress.pool) if egress.pool else None
    address = read(egress.address)
    inside = pool is not None and address is not None and any(span.holds(address) for span in pool.spans)
    if egress.address:
        yield NamedAddress(egress.owner, egress.address, egress.pool if inside else "", egress.since)
    promise = facts.get(PendingAllocation, egress.owner)
    if promise and promise.stands(egress.uid, egress.generation) and promise.address != egress.address:
        where = egress.pool if pool else ""
        yield NamedAddress(egress.owner, promise.address, where, egress.since, promised=True)
    if pool is not None and not inside:
        yield AddressRequest(egress.owner, egress.pool, egress.since)


def egress_address(facts: Facts, egress: EgressRow) -> Iterator[EgressAddress | Status | RecordEvent]:
    """Yield the address and status, unless another replica leads. The status of all addresses is written with the first."""
    if facts.get(FencedLeadership) is None:
        return
    if egress.pool:
        yield from _written(facts, egress)
    if egress.slot:
        return
    rows = all_of(facts, egress)
    pooled = [row for row in rows if row.pool]
    if not pooled:
        if egress.judged:
            yield _status(egress, Condition(ALLOCATED))
    elif not any(_offered(facts, row) for row in pooled):
        why = next(
            filter(None, (_why_not(facts, row, facts.get(AddressOffer, row.owner)) for row in pooled)), ""
        )
        yield from _record_refusal(rows, why)


def all_of(facts: Facts, egress: EgressRow) -> list[EgressRow]:
    """Return the rows of the same Egress."""
    if not egress.of:
        return [egress]
    return sorted(facts.by(EgressRow, "name", egress.name), key=lambda row: row.slot)


def _offered(facts: Facts, egress: EgressRow) -> str:
    offer = facts.get(AddressOffer, egress.owner)
    return offer.address if offer else ""


def _written(facts: Facts, egress: EgressRow) -> Iterator[EgressAddress]:
    """Yield the fields of its spec to replace, with their new values."""
    pool, offer = facts.get(PoolRow, egress.pool), facts.get(AddressOffer, egress.owner)
    wanted = offer.address if offer else ""
    if wanted or (egress.address and (pool is None or offer)):
        yield EgressAddress(
            egress=egress.name, uid=egress.uid, generation=egress.generation, address=wanted,
            takes=bool(egress.address), pool=egress.pool,
            pool_uid=pool.uid if pool else "", pool_generation=pool.generation if pool else 0,
            slot=egress.slot, of=egress.of,
        )  # fmt: skip


def _why_not(facts: Facts, egress: EgressRow, offer: AddressOffer | None) -> str:
    """Return why it has no address of its pool; empty if it has."""
    if facts.get(PoolRow, egress.pool) is None:
        return f"ExternalIPPool {egress.pool} does not exist"
    if offer:
        return "cannot allocate IP in any range"
    if facts.get(HeldAddress, egress.owner):
        return ""
    what, other = f"IP {egress.address}", first(facts, egress.pool, egress.address)
    why = f"error when allocating {what} for Egress {egress.name} from ExternalIPPool {egress.pool}"
    whose = f" ({other} has it)" if other != egress.owner else ""
    return f"{why}: cannot allocate {what} in any range{whose}"


def _record_refusal(rows: Sequence[EgressRow], why: str) -> Iterator[Status | RecordEvent]:
    """Yield the condition, and an Event when it turns to False or back: upstream has none, so an allocation alone has none."""
    egress = rows[0]
    message = f"Cannot allocate EgressIP from ExternalIPPool: {why}"
    condition = Condition(ALLOCATED, "False", reason="AllocationError", message=message)
    event = message
    if not why:
        message = "EgressIP is successfully allocated"
        condition = Condition(ALLOCATED, "True", reason="Allocated", message=message)
        event = "; ".join(
            f"EgressIP {row.address} is allocated from ExternalIPPool {row.pool}" for row in rows if row.pool
        )
    yield _status(egress, condition)
    if condition.status != egress.judged and (why or egress.judged):
        yield RecordEvent(
            egress.name, event, "crd.antrea.io/v1beta1", "Egress", egress.name, egress.uid,
            condition.reason, event, warning=bool(why),
        )  # fmt: skip


def _status(egress: EgressRow, condition: Condition) -> Status:
    """Make the status; another entry while the object has lost what was written before, so that it is written again."""
    stale = (STALE,) if egress.lost else ()
    path = f"{EGRESSES}/{egress.name}"
    return Status(path=path, kind="Egress", manager=MANAGER, conditions=(condition, *stale))


UNITS = (
    Unit(EgressRow, egress_claim, yields=(NamedAddress, AddressRequest)),
    Unit(EgressRow, egress_address),
)
