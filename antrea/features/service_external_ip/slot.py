"""Slots for addresses of a Service: one, or one for each of its families, each with the pool that is to give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.family import is_ipv6
from antrea.features.external_ip_pool.address import usable
from antrea.features.external_ip_pool.pool import PoolRow
from antrea.features.framework.address import read
from antrea.features.service_external_ip.service import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from antrea.engine import Facts
    from antrea.facts.external_ip import PooledService


class Slot(NamedTuple):
    """Slot for an address of a Service, which has one, or one for each of its families."""

    owner: str
    families: tuple[int, ...]
    """4 or 6: usable families, the better first."""
    address: str
    """Address in its status; empty if none."""
    pool: PoolRow | None
    """Pool; None if none that the Service names exists."""


def slots_of(facts: Facts, service: PooledService) -> tuple[Slot, ...]:
    """Return the slots: two for a dual-stack Service whose pools have both families, unless it requests an address by name."""
    pools, families = pools_of(facts, service), service.families
    of_each = [next((pool for pool in pools if family in families_of(pool)), None) for family in families]
    if len(families) > 1 and not service.wants and all(of_each):
        return tuple(
            Slot(
                service.slot_owner(slot),
                (family,),
                next((ip for ip in service.addresses if family_of(ip) == family), ""),
                pool,
            )
            for slot, (family, pool) in enumerate(zip(families, of_each, strict=True))
        )
    requested = (pool for pool in pools if is_in(pool, service.wants))
    pool = (*requested, *filter(None, of_each), *pools, None)[0]
    fit = [ip for ip in service.addresses if not families or family_of(ip) in families]
    order = (service.wants, *(ip for ip in fit if is_in(pool, ip)), *fit, *service.addresses)
    return (Slot(service.owner, families, next((ip for ip in order if ip in service.addresses), ""), pool),)


def pools_of(facts: Facts, service: PooledService) -> list[PoolRow]:
    """Return the existing pools that it names."""
    return [pool for name in service.pools if (pool := facts.get(PoolRow, name))]


def pools_missed(facts: Facts, service: PooledService, slots: Iterable[Slot]) -> str:
    """Return which pools do not exist, if the Service lacks an address for it; empty otherwise."""
    pools = [slot.pool for slot in slots if slot.pool]
    served = {family for pool in pools for family in families_of(pool)}
    if service.wants:
        lacks = not any(is_in(pool, service.wants) for pool in pools)
    else:
        lacks = not pools or not served.issuperset(service.families)
    gone = [name for name in service.pools if facts.get(PoolRow, name) is None] if lacks else []
    return f"{named(gone)} {'do' if len(gone) > 1 else 'does'} not exist" if gone else ""


def named(pools: Sequence[str]) -> str:
    """Pools for a message."""
    return f"ExternalIPPool{'s' * (len(pools) > 1)} {', '.join(map(shown, pools))}"


def is_in(pool: PoolRow | None, text: str) -> bool:
    """Whether a pool has this address to give."""
    address = read(text) if text else None
    return pool is not None and address is not None and usable(pool.spans, address)


def family_of(ip: str) -> int:
    """Return 4 or 6."""
    return 6 if is_ipv6(ip) else 4


def families_of(pool: PoolRow) -> set[int]:
    """Return the families of its ranges."""
    return {span.family for span in pool.spans}
