"""ServiceExternalIP in the controller: which address of its pool each Service has, and why it has none.

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


class Verdict(NamedTuple):
    """What a Service is to have."""

    address: str
    why: str = ""
    """Why it has none."""
    promised: bool = False


def service_claim(facts: Facts, service: PooledService) -> Iterator[NamedAddress | AddressRequest]:
    """The address of its status, what it asks for and is promised is not given to others; without any of these it seeks an address."""
    pool = facts.get(PoolRow, service.pool) if service.pool else None
    owner, since, shares = service.owner, service.since, service.shares
    stays = _is_in(pool, service.address) and service.wants in ("", service.address)
    if pool and stays and not service.wants:
        stays = _is_of_use(pool, service)
    if service.address:
        where = service.pool if stays else ""
        yield NamedAddress(owner, service.address, where, since, shares=shares, claim=KEPT)
    if not stays and _is_in(pool, service.wants) and service.wants != service.address:
        yield NamedAddress(owner, service.wants, service.pool, since, shares=shares, claim=ASKED)
    promise = facts.get(PendingAllocation, owner)
    if promise and promise.stands(service.uid, service.generation) and promise.address != service.address:
        yield NamedAddress(owner, promise.address, service.pool if pool else "", since, promised=True)
    if pool and not stays and not service.wants:
        yield AddressRequest(owner, service.pool, since, service.families)


def service_address(facts: Facts, service: PooledService) -> Iterator[ServiceAddress | RecordEvent]:
    """Nothing while another replica leads."""
    if facts.get(FencedLeadership) is None:
        return
    if not service.pool:
        if service.told:
            yield _written(facts, service, Verdict(""), None)
        return
    if service.doubt:
        yield RecordEvent(
            f"{service.owner} annotation", service.doubt, "v1", "Service", service.name, service.uid, "AnnotationIgnored",
            service.doubt, warning=True, namespace=service.namespace,
        )  # fmt: skip
    verdict = _verdict(facts, service)
    if verdict is None:
        return
    yield from _shared_abroad(facts, service, verdict.address)
    condition = Condition(ALLOCATED, "True", reason="Allocated", message=_given(service))
    if verdict.why:
        condition = Condition(ALLOCATED, "False", reason="AllocationError", message=verdict.why)
    said = (condition.status, condition.reason, condition.message)
    stands = service.address == verdict.address and service.count == bool(verdict.address)
    if not stands or service.told != said:
        yield _written(facts, service, verdict, condition)
    before = service.told[0] if service.told else ""
    if condition.status != before and (verdict.why or before):
        event = verdict.why or f"{verdict.address} is the external IP, of ExternalIPPool {service.pool}"
        yield RecordEvent(
            service.owner, event, "v1", "Service", service.name, service.uid, condition.reason, event,
            warning=bool(verdict.why), namespace=service.namespace,
        )  # fmt: skip


def _shared_abroad(facts: Facts, service: PooledService, address: str) -> Iterator[RecordEvent]:
    """An Event on others who have its address: the annotation that shares it names no Namespace."""
    own = f"Service/{service.namespace}/"
    sharers = holders(facts, service.pool, address) if address and service.shares else ()
    names = sorted(one.removeprefix("Service/") for one in sharers if not one.startswith(own))
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


def _is_of_use(pool: PoolRow, service: PooledService) -> bool:
    """Whether the address that it has is of a family of the Service, unless the pool has no such ones."""
    families = {span.family for span in pool.spans}.intersection(service.families)
    address = read(service.address)
    return not families or (address is not None and address.version in families)


def _verdict(facts: Facts, service: PooledService) -> Verdict | None:
    """None: nothing changes for the moment."""
    pool, wants = facts.get(PoolRow, service.pool), service.wants
    if pool is None:
        return Verdict("", f"ExternalIPPool {shown(service.pool)} does not exist")
    held = facts.get(HeldAddress, service.owner)
    if wants:
        return Verdict(wants) if held and held.address == wants else Verdict("", _why_not(facts, service))
    if held:
        return Verdict(held.address)
    offer = facts.get(AddressOffer, service.owner)
    if offer is None:
        return None
    if not offer.address:
        return Verdict("", f"ExternalIPPool {service.pool} has no free address")
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
    who = others[0].replace("/", " ", 1) if others else "another owner"
    return f"spec.loadBalancerIP {wants} is that of {who}" + _unshared(facts, service, others)


def _unshared(facts: Facts, service: PooledService, others: list[str]) -> str:
    if not others or not others[0].startswith("Service/"):
        return ""
    if not service.shares:
        return "; to share it, both need the annotation service.antrea.io/allow-shared-load-balancer-ip"
    return ", which does not share it"


def _written(
    facts: Facts, service: PooledService, verdict: Verdict, condition: Condition | None
) -> ServiceAddress:
    pool = facts.get(PoolRow, service.pool) if service.pool else None
    before = service.told[0] if service.told else ""
    return ServiceAddress(
        namespace=service.namespace, name=service.name, uid=service.uid, generation=service.generation,
        address=verdict.address, condition=condition, turned=condition is not None and condition.status != before,
        promised=verdict.promised, takes=bool(service.address and service.pool and service.address != verdict.address),
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
