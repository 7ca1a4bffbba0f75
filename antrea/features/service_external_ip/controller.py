"""ServiceExternalIP in the controller: addresses of each Service from its pool, and why it has none.

Upstream reports nothing about a Service without an address; here a condition and an Event do.
parity: pkg/controller/serviceexternalip/controller.go syncService
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis.crd.part import Condition
from antrea.apis.service_address import ALLOCATED, JudgedPool, ServiceAddress
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
from antrea.features.external_ip_pool.controller import KEPT, REQUESTED, holders
from antrea.features.external_ip_pool.pool import PoolRow
from antrea.features.framework.address import canonical
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.event import RecordEvent
from antrea.features.service_external_ip.service import WATCHED, shown
from antrea.features.service_external_ip.slot import (
    Slot,
    families_of,
    family_of,
    is_in,
    named,
    pools_missed,
    pools_of,
    slots_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.engine import Facts


MAX_NAMED: Final = 5
"""Maximum number of Services that an Event names."""


class Verdict(NamedTuple):
    """Address that a slot is to have."""

    address: str
    why: str = ""
    """Why it has none."""
    promised: bool = False


def service_claim(facts: Facts, service: PooledService) -> Iterator[NamedAddress | AddressRequest]:
    """Yield the addresses that others do not get, of its status, requested and promised; a slot without any of these requests
    one.
    """
    slots = slots_of(facts, service)
    for slot in slots:
        yield from _slot_claim(facts, service, slot)
    for address in set(service.addresses).difference(slot.address for slot in slots):
        yield NamedAddress(service.owner, address, "", service.since, claim=KEPT)


def _slot_claim(facts: Facts, service: PooledService, slot: Slot) -> Iterator[NamedAddress | AddressRequest]:
    owner, since, shares, wants = slot.owner, service.since, service.shares, service.wants
    stays, name = _stays(service, slot), slot.pool.name if slot.pool else ""
    if slot.address:
        yield NamedAddress(owner, slot.address, name if stays else "", since, shares=shares, claim=KEPT)
    if not stays and is_in(slot.pool, wants) and wants != slot.address:
        yield NamedAddress(owner, wants, name, since, shares=shares, claim=REQUESTED)
    promise = facts.get(PendingAllocation, owner)
    if promise and promise.stands(service.uid, service.generation) and promise.address != slot.address:
        yield NamedAddress(owner, promise.address, name, since, promised=True)
    if name and not stays and not wants:
        yield AddressRequest(owner, name, since, slot.families)


def _stays(service: PooledService, slot: Slot) -> bool:
    """Whether it keeps its address: the pool has it, and it is of a family of the Service, unless the pool has no such ones."""
    if slot.pool is None or not is_in(slot.pool, slot.address):
        return False
    families = families_of(slot.pool).intersection(slot.families)
    of_use = not families or family_of(slot.address) in families
    return service.wants == slot.address or (not service.wants and of_use)


def service_address(facts: Facts, service: PooledService) -> Iterator[ServiceAddress | RecordEvent]:
    """Yield the address, unless another replica leads."""
    if facts.get(FencedLeadership) is None:
        return
    if not service.pools:
        if service.condition:
            yield _written(facts, service, (), None)
        return
    if service.doubt:
        yield RecordEvent(
            f"{service.owner} annotation", service.doubt, "v1", "Service", service.name, service.uid, "AnnotationIgnored",
            service.doubt, warning=True, namespace=service.namespace,
        )  # fmt: skip
    slots = slots_of(facts, service)
    pairs = [(slot, _verdict(facts, service, slot)) for slot in slots]
    verdicts = [(slot, verdict) for slot, verdict in pairs if verdict]
    if len(verdicts) < len(pairs):
        return
    addresses = tuple(verdict.address for _, verdict in verdicts if verdict.address)
    pools = tuple(
        dict.fromkeys(slot.pool.name for slot, verdict in verdicts if slot.pool and verdict.address)
    )
    for slot, verdict in verdicts:
        yield from _shared_abroad(facts, service, slot, verdict.address)
    why = "; ".join(
        filter(None, (pools_missed(facts, service, slots), *(verdict.why for _, verdict in verdicts)))
    )
    condition = Condition(
        ALLOCATED, "True", reason="Allocated", message=f"the external IP is of {named(pools)}"
    )
    if why:
        condition = Condition(ALLOCATED, "False", reason="AllocationError", message=why)
    said = (condition.status, condition.reason, condition.message)
    if (service.addresses, service.count, service.condition) != (addresses, len(addresses), said):
        yield _written(facts, service, verdicts, condition)
    before = service.condition[0] if service.condition else ""
    if condition.status != before and (why or before):
        event = why or f"{', '.join(addresses)} is the external IP, of {named(pools)}"
        yield RecordEvent(
            service.owner, event, "v1", "Service", service.name, service.uid, condition.reason, event,
            warning=bool(why), namespace=service.namespace,
        )  # fmt: skip


def _shared_abroad(facts: Facts, service: PooledService, slot: Slot, address: str) -> Iterator[RecordEvent]:
    """Yield an Event on others who have its address: the annotation that shares it names no Namespace."""
    namespace_prefix = f"Service/{service.namespace}/"
    sharers = holders(facts, slot.pool.name, address) if slot.pool and address and service.shares else ()
    names = sorted(
        _shown(sharer).removeprefix("Service ")
        for sharer in sharers
        if not sharer.startswith(namespace_prefix)
    )
    if names:
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        message = f"{address} is also the external IP of Services of other Namespaces: {', '.join(names[:MAX_NAMED])}{more}"
        yield RecordEvent(
            f"{service.owner} shared", True, "v1", "Service", service.name, service.uid, "ExternalIPShared", message,
            warning=True, namespace=service.namespace,
        )  # fmt: skip


def _verdict(facts: Facts, service: PooledService, slot: Slot) -> Verdict | None:
    """Return the verdict; None if nothing changes for the moment."""
    wants = service.wants
    if slot.pool is None:
        return Verdict("")  # `pools_missed` says so
    held = facts.get(HeldAddress, slot.owner)
    if wants:
        return (
            Verdict(wants)
            if held and held.address == wants
            else Verdict("", _why_not(facts, service, slot.pool))
        )
    if held:
        return Verdict(held.address)
    offer = facts.get(AddressOffer, slot.owner)
    if offer is None:
        return None
    if not offer.address:
        is_one_of_two = slot.families != service.families
        kind = f"IPv{slot.families[0]} address" if is_one_of_two else "address"
        return Verdict("", f"ExternalIPPool {slot.pool.name} has no free {kind}")
    return Verdict(offer.address, promised=True)


def _why_not(facts: Facts, service: PooledService, pool: PoolRow) -> str:
    """Return why it does not have what it requests."""
    wants = service.wants
    if not canonical(wants):
        return f"spec.loadBalancerIP {shown(wants)} is not an IP address"
    if not is_in(pool, wants):
        pools = [row.name for row in pools_of(facts, service)]
        return f"spec.loadBalancerIP {wants} is not an address of {named(pools)}"
    others = [owner for owner in holders(facts, pool.name, wants) if owner != service.owner]
    others += [row.owner for row in facts.by(NamedAddress, "address", wants) if row.owner != service.owner]
    who = _shown(others[0]) if others else "another owner"
    return f"spec.loadBalancerIP {wants} is that of {who}" + _unshared(service, others)


def _shown(owner: str) -> str:
    """Return kind and name, whichever of its addresses it is."""
    return owner.partition(" ")[0].replace("/", " ", 1)


def _unshared(service: PooledService, others: list[str]) -> str:
    if not others or not others[0].startswith("Service/"):
        return ""
    if not service.shares:
        return "; to share it, both need the annotation service.antrea.io/allow-shared-load-balancer-ip"
    return ", which does not share it"


def _written(
    facts: Facts,
    service: PooledService,
    verdicts: Sequence[tuple[Slot, Verdict]],
    condition: Condition | None,
) -> ServiceAddress:
    before = service.condition[0] if service.condition else ""
    addresses = tuple(verdict.address for _, verdict in verdicts if verdict.address)
    pools = ((name, facts.get(PoolRow, name)) for name in service.pools)
    return ServiceAddress(
        namespace=service.namespace, name=service.name, uid=service.uid, generation=service.generation,
        addresses=addresses, condition=condition, turned=condition is not None and condition.status != before,
        promised=tuple((slot.owner, verdict.address) for slot, verdict in verdicts if verdict.promised),
        takes=bool(service.pools and not set(addresses).issuperset(service.addresses)),
        pools=tuple(JudgedPool(name, row.uid, row.generation) if row else JudgedPool(name) for name, row in pools),
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
