"""ServiceExternalIP in the controller: which addresses of its pool each Service has, and why it has none.

Upstream reports nothing about a Service without an address; here a condition and an Event do.
parity: pkg/controller/serviceexternalip/controller.go syncService
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis.crd.part import Condition
from antrea.apis.service_address import ALLOCATED, ServiceAddress
from antrea.engine import Unit
from antrea.facts.external_ip import (
    AddressOffer,
    AddressRequest,
    FencedLeadership,
    HeldAddress,
    NamedAddress,
    PendingAllocation,
    PooledService,
)
from antrea.facts.family import is_ipv6
from antrea.features.external_ip_pool.address import usable
from antrea.features.external_ip_pool.controller import ASKED, KEPT, holders
from antrea.features.external_ip_pool.pool import PoolRow
from antrea.features.framework.address import canonical, read
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.event import RecordEvent
from antrea.features.service_external_ip.service import WATCHED, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


MOST_NAMED: Final = 5
"""Services that an Event names."""


class Slot(NamedTuple):
    """A place for an address of a Service: it has one, or one for each of its families."""

    owner: str
    families: tuple[int, ...]
    """4 or 6: those that it has use for, the better first."""
    address: str
    """That it has in its status; empty: none."""


class Verdict(NamedTuple):
    """What a slot is to have."""

    address: str
    why: str = ""
    """Why it has none."""
    promised: bool = False


def slots_of(pool: PoolRow | None, service: PooledService) -> tuple[Slot, ...]:
    """Two of a dual-stack Service whose pool has both families, unless it asks for an address by name."""
    families, wants = service.families, service.wants
    if pool and len(families) > 1 and not wants and _families(pool).issuperset(families):
        return tuple(
            Slot(
                service.slot_owner(slot),
                (family,),
                next((ip for ip in service.addresses if _family(ip) == family), ""),
            )
            for slot, family in enumerate(families)
        )
    fit = [ip for ip in service.addresses if not families or _family(ip) in families]
    order = (wants, *(ip for ip in fit if _is_in(pool, ip)), *fit, *service.addresses)
    return (Slot(service.owner, families, next((ip for ip in order if ip in service.addresses), "")),)


def _family(ip: str) -> int:
    return 6 if is_ipv6(ip) else 4


def _families(pool: PoolRow) -> set[int]:
    return {span.family for span in pool.spans}


def service_claim(facts: Facts, service: PooledService) -> Iterator[NamedAddress | AddressRequest]:
    """The addresses of its status, what it asks for and is promised are not given to others; a slot without any of these seeks an address."""
    pool = facts.get(PoolRow, service.pool) if service.pool else None
    slots = slots_of(pool, service)
    for slot in slots:
        yield from _slot_claim(facts, service, pool, slot)
    for address in set(service.addresses).difference(slot.address for slot in slots):
        yield NamedAddress(service.owner, address, "", service.since, claim=KEPT)


def _slot_claim(
    facts: Facts, service: PooledService, pool: PoolRow | None, slot: Slot
) -> Iterator[NamedAddress | AddressRequest]:
    owner, since, shares, wants = slot.owner, service.since, service.shares, service.wants
    stays = _stays(pool, service, slot)
    if slot.address:
        where = service.pool if stays else ""
        yield NamedAddress(owner, slot.address, where, since, shares=shares, claim=KEPT)
    if not stays and _is_in(pool, wants) and wants != slot.address:
        yield NamedAddress(owner, wants, service.pool, since, shares=shares, claim=ASKED)
    promise = facts.get(PendingAllocation, owner)
    if promise and promise.stands(service.uid, service.generation) and promise.address != slot.address:
        yield NamedAddress(owner, promise.address, service.pool if pool else "", since, promised=True)
    if pool and not stays and not wants:
        yield AddressRequest(owner, service.pool, since, slot.families)


def _stays(pool: PoolRow | None, service: PooledService, slot: Slot) -> bool:
    """Whether it keeps its address: the pool has it, and it is of a family of the Service, unless the pool has no such ones."""
    if pool is None or not _is_in(pool, slot.address):
        return False
    families = _families(pool).intersection(slot.families)
    of_use = not families or _family(slot.address) in families
    return service.wants == slot.address or (not service.wants and of_use)


def service_address(facts: Facts, service: PooledService) -> Iterator[ServiceAddress | RecordEvent]:
    """Nothing while another replica leads."""
    if facts.get(FencedLeadership) is None:
        return
    if not service.pool:
        if service.told:
            yield _written(facts, service, (), None)
        return
    if service.doubt:
        yield RecordEvent(
            f"{service.owner} annotation", service.doubt, "v1", "Service", service.name, service.uid, "AnnotationIgnored",
            service.doubt, warning=True, namespace=service.namespace,
        )  # fmt: skip
    slots = slots_of(facts.get(PoolRow, service.pool), service)
    found = [(slot.owner, _verdict(facts, service, slot)) for slot in slots]
    verdicts = [(owner, verdict) for owner, verdict in found if verdict]
    if len(verdicts) < len(found):
        return
    addresses = tuple(verdict.address for _, verdict in verdicts if verdict.address)
    for address in addresses:
        yield from _shared_abroad(facts, service, address)
    why = "; ".join(verdict.why for _, verdict in verdicts if verdict.why)
    condition = Condition(ALLOCATED, "True", reason="Allocated", message=_given(service))
    if why:
        condition = Condition(ALLOCATED, "False", reason="AllocationError", message=why)
    said = (condition.status, condition.reason, condition.message)
    if (service.addresses, service.count, service.told) != (addresses, len(addresses), said):
        yield _written(facts, service, tuple(verdicts), condition)
    before = service.told[0] if service.told else ""
    if condition.status != before and (why or before):
        event = why or f"{', '.join(addresses)} is the external IP, of ExternalIPPool {service.pool}"
        yield RecordEvent(
            service.owner, event, "v1", "Service", service.name, service.uid, condition.reason, event,
            warning=bool(why), namespace=service.namespace,
        )  # fmt: skip


def _shared_abroad(facts: Facts, service: PooledService, address: str) -> Iterator[RecordEvent]:
    """An Event on others who have its address: the annotation that shares it names no Namespace."""
    own = f"Service/{service.namespace}/"
    sharers = holders(facts, service.pool, address) if address and service.shares else ()
    names = sorted(_shown(one).removeprefix("Service ") for one in sharers if not one.startswith(own))
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        message = f"{address} is also the external IP of Services of other Namespaces: {', '.join(names[:MOST_NAMED])}{more}"
        yield RecordEvent(
            f"{service.owner} shared", True, "v1", "Service", service.name, service.uid, "ExternalIPShared", message,
            warning=True, namespace=service.namespace,
        )  # fmt: skip


def _given(service: PooledService) -> str:
    return f"the external IP is of ExternalIPPool {service.pool}"


def _is_in(pool: PoolRow | None, text: str) -> bool:
    address = read(text) if text else None
    return pool is not None and address is not None and usable(pool.spans, address)


def _verdict(facts: Facts, service: PooledService, slot: Slot) -> Verdict | None:
    """None: nothing changes for the moment."""
    pool, wants = facts.get(PoolRow, service.pool), service.wants
    if pool is None:
        return Verdict("", f"ExternalIPPool {shown(service.pool)} does not exist")
    held = facts.get(HeldAddress, slot.owner)
    if wants:
        return Verdict(wants) if held and held.address == wants else Verdict("", _why_not(facts, service))
    if held:
        return Verdict(held.address)
    offer = facts.get(AddressOffer, slot.owner)
    if offer is None:
        return None
    if not offer.address:
        is_one_of_two = slot.families != service.families
        kind = f"IPv{slot.families[0]} address" if is_one_of_two else "address"
        return Verdict("", f"ExternalIPPool {service.pool} has no free {kind}")
    return Verdict(offer.address, promised=True)


def _why_not(facts: Facts, service: PooledService) -> str:
    """Why it does not have what it asks for."""
    wants, pool = service.wants, facts.get(PoolRow, service.pool)
    if not canonical(wants):
        return f"spec.loadBalancerIP {shown(wants)} is not an IP address"
    if not _is_in(pool, wants):
        return f"spec.loadBalancerIP {wants} is not an address of ExternalIPPool {service.pool}"
    others = [owner for owner in holders(facts, service.pool, wants) if owner != service.owner]
    others += [row.owner for row in facts.by(NamedAddress, "address", wants) if row.owner != service.owner]
    who = _shown(others[0]) if others else "another owner"
    return f"spec.loadBalancerIP {wants} is that of {who}" + _unshared(facts, service, others)


def _shown(owner: str) -> str:
    """Kind and name, whichever of its addresses it is."""
    return owner.partition(" ")[0].replace("/", " ", 1)


def _unshared(facts: Facts, service: PooledService, others: list[str]) -> str:
    if not others or not others[0].startswith("Service/"):
        return ""
    if not service.shares:
        return "; to share it, both need the annotation service.antrea.io/allow-shared-load-balancer-ip"
    return ", which does not share it"


def _written(
    facts: Facts,
    service: PooledService,
    verdicts: tuple[tuple[str, Verdict], ...],
    condition: Condition | None,
) -> ServiceAddress:
    """`verdicts` are those of its slots, each with the owner."""
    pool = facts.get(PoolRow, service.pool) if service.pool else None
    before = service.told[0] if service.told else ""
    addresses = tuple(verdict.address for _, verdict in verdicts if verdict.address)
    return ServiceAddress(
        namespace=service.namespace, name=service.name, uid=service.uid, generation=service.generation,
        addresses=addresses, condition=condition, turned=condition is not None and condition.status != before,
        promised=tuple((owner, verdict.address) for owner, verdict in verdicts if verdict.promised),
        takes=bool(service.pool and not set(addresses).issuperset(service.addresses)),
        pool=service.pool, pool_uid=pool.uid if pool else "", pool_generation=pool.generation if pool else 0,
    )  # fmt: skip


FEATURE = ControllerFeature(
    name="ServiceExternalIP",
    watched=WATCHED,
    units=(
        Unit(PooledService, service_claim, yields=(NamedAddress, AddressRequest)),
        Unit(PooledService, service_address),
    ),
    gate="ServiceExternalIP",
)
FEATURES = (FEATURE,)
