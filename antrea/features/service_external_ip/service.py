"""Services that are to have an address of an ExternalIPPool, for agents and the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis import core
from antrea.apis.annotation import ALLOW_SHARED_IP, EXTERNAL_IP_POOL
from antrea.apis.service_address import ALLOCATED, SERVICES
from antrea.apis.shown import one_line
from antrea.facts.external_ip import PooledService
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.service_pool import MAX_POOLS, TRUE, named_pools, pools_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FAMILIES: Final[Mapping[str, int]] = {"IPv4": 4, "IPv6": 6}
MAX_LENGTH: Final = 253
"""Maximum number of characters that a message quotes of a user's text: those of the longest name of a pool."""

MAX_READ: Final = 16
"""Maximum number of addresses that are read of a status: more than one of each family is another's work."""


def _doubt(service: core.Service) -> str:
    """Return a sentence on pools without effect; empty if there are none. Unknown values have an Event of idle requests."""
    if (names := len(named_pools(service))) > MAX_POOLS:
        return f"annotation {EXTERNAL_IP_POOL}: of {names} pools the first {MAX_POOLS} count"
    return ""


def shown(text: str) -> str:
    """Quote a user's text for a message: one line, of limited length."""
    return one_line(text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}...")


def pooled_service(service: core.Service) -> PooledService | None:
    """Make the row; None for a Service that neither is to have an address nor has one."""
    meta, spec, ingress = service.metadata, service.spec, service.status.load_balancer.ingress
    pools, wants = pools_of(service), spec.load_balancer_ip
    allocated = next(
        (condition for condition in service.status.conditions if condition.type == ALLOCATED), None
    )
    if not (pools or allocated or ingress):
        return None
    version = meta.resource_version
    return PooledService(
        meta.namespace,
        meta.name,
        meta.uid,
        # the API promises that versions of one kind can be compared as numbers (KEP-5504)
        int(version) if version.isdecimal() else 0,
        meta.creation_timestamp,
        pools,
        (canonical(wants) or wants) if pools else "",
        tuple(filter(None, (canonical(ingress_ip.ip) for ingress_ip in ingress[:MAX_READ]))),
        len(ingress),
        meta.annotations.get(ALLOW_SHARED_IP, "") in TRUE,
        tuple(FAMILIES[name] for name in spec.ip_families if name in FAMILIES),
        (allocated.status, allocated.reason, allocated.message) if allocated else None,
        _doubt(service) if pools else "",
    )


WATCHED = (Watched(SERVICES, core.Service, PooledService, pooled_service, fence="collection"),)
