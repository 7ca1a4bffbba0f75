"""Which Services are to have an address of an ExternalIPPool, as agents and the controller read them."""

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
"""Characters that a message quotes of what a user wrote: those of the longest name of a pool."""

MAX_READ: Final = 16
"""Addresses that are read of a status: more than one of each family is another's work."""


def _doubt(found: core.Service) -> str:
    """Pools without effect, in a sentence; empty: there are none. Values that are not understood have an Event of idle requests."""
    if (names := len(named_pools(found))) > MAX_POOLS:
        return f"annotation {EXTERNAL_IP_POOL}: of {names} pools the first {MAX_POOLS} count"
    return ""


def shown(text: str) -> str:
    """What a user wrote, for a message: one line, of limited length."""
    return one_line(text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}...")


def pooled_service(found: core.Service) -> PooledService | None:
    """None for one that neither is to have an address nor has one."""
    meta, spec, ingress = found.metadata, found.spec, found.status.load_balancer.ingress
    pools, wants = pools_of(found), spec.load_balancer_ip
    told = next((one for one in found.status.conditions if one.type == ALLOCATED), None)
    if not (pools or told or ingress):
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
        tuple(filter(None, (canonical(one.ip) for one in ingress[:MAX_READ]))),
        len(ingress),
        meta.annotations.get(ALLOW_SHARED_IP, "") in TRUE,
        tuple(FAMILIES[name] for name in spec.ip_families if name in FAMILIES),
        (told.status, told.reason, told.message) if told else None,
        _doubt(found) if pools else "",
    )


WATCHED = (Watched(SERVICES, core.Service, PooledService, pooled_service),)
