"""Creates the default Tiers and puts their priorities right.

parity: pkg/controller/networkpolicy/tier.go InitializeTiers
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.tier import Tier
from antrea.errors import Refused, Unavailable
from antrea.features.network_policy.tier import DEFAULT_TIERS, tier_path
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 8.0
"""Seconds between tries: our own webhook must answer first."""
TIMEOUT = 60.0
"""Seconds that it may take without a warning: the API server has to learn our certificate and our address."""


async def create_default_tiers(
    kube: Kube, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Returns when all are there; tries until then."""
    waited = 0.0
    for tier in DEFAULT_TIERS:
        pause = FIRST_PAUSE
        while True:
            try:
                await _ensure(kube, tier)
                break
            except (Refused, Unavailable) as error:
                _log_failure(tier.metadata.name, error, waited)
            await sleep(pause)
            waited += pause
            pause = min(pause * 2, LONGEST_PAUSE)


def _log_failure(name: str, why: Refused | Unavailable, waited: float) -> None:
    """Log a failure; that the webhook cannot be called yet is normal at every first start."""
    if isinstance(why, Refused) or waited >= TIMEOUT:
        log.warning("Failed to create a default Tier", tier=name, err=str(why))
        return
    if not waited:
        log.info("Default Tiers will be created once kube-apiserver can call the webhook")
    log.v(2).info("Failed to create a default Tier", tier=name, err=str(why))


async def _ensure(kube: Kube, tier: Tier) -> None:
    name = tier.metadata.name
    found = await kube.get(tier_path(name), Tier)
    if found is None:
        head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Tier", "metadata": {"name": name}}
        await kube.create_named(tier_path(name), {**head, "spec": msgspec.to_builtins(tier.spec)})
        log.info("Created default Tier", tier=name, priority=tier.spec.priority)
    elif found.spec.priority != tier.spec.priority:
        await kube.patch(tier_path(name), {"spec": {"priority": tier.spec.priority}})
        log.info("Corrected the priority of a default Tier", tier=name, priority=tier.spec.priority)
