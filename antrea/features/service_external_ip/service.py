"""Which Services are to have an address of an ExternalIPPool, as agents and the controller read them.

Upstream looks at no class. A Service with another class than ours is another load balancer's, as Kubernetes asks.
parity: pkg/controller/serviceexternalip/controller.go getServiceExternalIPPool, isServiceExternalIPSharable
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis import core
from antrea.apis.annotation import (
    ALLOW_SHARED_IP,
    EXTERNAL_IP_POOL,
    FAILBACK_FOR_SERVICE,
    PREFERRED_FOR_SERVICE,
)
from antrea.apis.service_address import ALLOCATED, SERVICES
from antrea.apis.shown import one_line
from antrea.facts.external_ip import PooledService
from antrea.features.egress.preference import NEVER, WHEN_IDLE, preferred_nodes
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched

if TYPE_CHECKING:
    from collections.abc import Mapping

LOAD_BALANCER: Final = "LoadBalancer"
CLASS: Final = "service.antrea.io/external-ip"
"""Our spec.loadBalancerClass, for who wants to keep other load balancers away; without a class a Service is ours, too."""
FAMILIES: Final[Mapping[str, int]] = {"IPv4": 4, "IPv6": 6}
TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
"""As Go's strconv.ParseBool reads it."""
MAX_LENGTH: Final = 253
"""Characters that a message quotes of what a user wrote: those of the longest name of a pool."""

MAX_READ: Final = 16
"""Addresses that are read of a status: more than one of each family is another's work."""
MAX_POOLS: Final = 4
"""Pools that are read of an annotation: one for each family, and others that are of use once the first ones are gone."""
MAX_PREFERRED: Final = 16
"""Nodes that are read of an annotation."""


def pools_of(found: core.Service) -> tuple[str, ...]:
    """Its ExternalIPPools, at most MAX_POOLS; none: it is to have no address of one."""
    spec = found.spec
    if spec.type != LOAD_BALANCER or spec.load_balancer_class not in ("", CLASS):
        return ()
    return _named_pools(found)[:MAX_POOLS]


def _named_pools(found: core.Service) -> tuple[str, ...]:
    """Of the annotation; a comma, which no name has, is between them."""
    names = found.metadata.annotations.get(EXTERNAL_IP_POOL, "").split(",")
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in names))))


def preferred_of(found: core.Service) -> tuple[str, ...]:
    """Nodes that are to answer for its external IP before others; at most MAX_PREFERRED."""
    return (
        preferred_nodes(found.metadata.annotations, PREFERRED_FOR_SERVICE)[:MAX_PREFERRED]
        if pools_of(found)
        else ()
    )


def failback_of(found: core.Service) -> str:
    """never or when-idle; empty: its external IP goes to a better Node at once, as it does with a value that is not known."""
    value = found.metadata.annotations.get(FAILBACK_FOR_SERVICE, "").strip()
    return value if value in (NEVER, WHEN_IDLE) and pools_of(found) else ""


def _doubt(found: core.Service) -> str:
    """Pools without effect, in a sentence; empty: there are none. Values that are not understood have an Event of idle requests."""
    if (names := len(_named_pools(found))) > MAX_POOLS:
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
