"""Wishes of a Service about its external IP: ExternalIPPools, preferred Nodes, when to go back.

Upstream looks at no class. A Service with another class than ours is another load balancer's, as Kubernetes asks.
parity: pkg/controller/serviceexternalip/controller.go getServiceExternalIPPool, isServiceExternalIPSharable
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import EXTERNAL_IP_POOL, FAILBACK_FOR_SERVICE, PREFERRED_FOR_SERVICE
from antrea.features.framework.preference import NEVER, WHEN_IDLE, preferred_nodes

if TYPE_CHECKING:
    from antrea.apis import core

LOAD_BALANCER: Final = "LoadBalancer"
CLASS: Final = "service.antrea.io/external-ip"
"""Our spec.loadBalancerClass, for who wants to keep other load balancers away; without a class a Service is ours, too."""
TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
"""Spellings of true that Go's strconv.ParseBool accepts."""
MAX_POOLS: Final = 4
"""Pools that are read of an annotation: one for each family, and others that are of use once the first ones are gone."""
MAX_PREFERRED: Final = 16
"""Nodes that are read of an annotation."""


def pools_of(service: core.Service) -> tuple[str, ...]:
    """Its ExternalIPPools, at most MAX_POOLS; none: it is to have no address of one."""
    spec = service.spec
    if spec.type != LOAD_BALANCER or spec.load_balancer_class not in ("", CLASS):
        return ()
    return named_pools(service)[:MAX_POOLS]


def named_pools(service: core.Service) -> tuple[str, ...]:
    """Names of ExternalIPPools in the annotation, each once; commas separate them."""
    names = service.metadata.annotations.get(EXTERNAL_IP_POOL, "").split(",")
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in names))))


def preferred_of(service: core.Service) -> tuple[str, ...]:
    """Nodes that are to answer for its external IP before others; at most MAX_PREFERRED."""
    return (
        preferred_nodes(service.metadata.annotations, PREFERRED_FOR_SERVICE)[:MAX_PREFERRED]
        if pools_of(service)
        else ()
    )


def failback_of(service: core.Service) -> str:
    """never or when-idle; empty: its external IP goes to a better Node at once, as it does with a value that is not known."""
    value = service.metadata.annotations.get(FAILBACK_FOR_SERVICE, "").strip()
    return value if value in (NEVER, WHEN_IDLE) and pools_of(service) else ""
