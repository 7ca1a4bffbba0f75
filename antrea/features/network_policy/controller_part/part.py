"""Effects of policies in the controller: the default Tiers, and reports of agents that are no longer true."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.tier import Tier
from antrea.errors import Refused, Unavailable
from antrea.features.framework.controller_part import ControllerPart
from antrea.features.network_policy.controller.realization import NodeReport, report_key
from antrea.features.network_policy.tier import DEFAULT_TIERS, tier_path
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from antrea.features.framework.controller_part import ControllerContext
    from antrea.outside.kube.client import Kube

GATE = "AntreaPolicy"
log = klog.logger(__name__)
FIRST_PAUSE, MAX_PAUSE = 1.0, 8.0
"""Seconds between tries: the controller's own webhook must answer first."""
TIMEOUT = 60.0
"""Seconds without a warning: the API server has to learn the webhook's certificate and address."""


# parity: pkg/controller/networkpolicy/tier.go InitializeTiers
async def create_default_tiers(
    kube: Kube, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Create all Tiers; retries until they exist."""
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
            pause = min(pause * 2, MAX_PAUSE)


def _log_failure(name: str, why: Refused | Unavailable, waited: float) -> None:
    """Log a failure; a webhook that cannot be called yet is normal at every first start."""
    if isinstance(why, Refused) or waited >= TIMEOUT:
        log.warning("Failed to create a default Tier", tier=name, err=str(why))
        return
    if not waited:
        log.info("Default Tiers will be created once kube-apiserver can call the webhook")
    log.v(2).info("Failed to create a default Tier", tier=name, err=str(why))


async def _ensure(kube: Kube, tier: Tier) -> None:
    name = tier.metadata.name
    stored = await kube.get(tier_path(name), Tier)
    if stored is None:
        head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Tier", "metadata": {"name": name}}
        await kube.create_named(tier_path(name), {**head, "spec": msgspec.to_builtins(tier.spec)})
        log.info("Created default Tier", tier=name, priority=tier.spec.priority)
    elif stored.spec.priority != tier.spec.priority:
        await kube.patch(tier_path(name), {"spec": {"priority": tier.spec.priority}})
        log.info("Corrected the priority of a default Tier", tier=name, priority=tier.spec.priority)


class PolicyPart(ControllerPart):
    """Part of Kubernetes' and Antrea's policies."""

    def __init__(self, controller: ControllerContext) -> None:
        self._controller = controller

    async def run_while_leading(self) -> None:
        if GATE in self._controller.gates:
            await create_default_tiers(self._controller.kube)

    def left_span(self, policy: str, nodes: Iterable[str]) -> None:
        """Drop the reports of these Nodes on the policy, which are no longer true."""
        for node in nodes:
            self._controller.facts.drop(NodeReport, report_key(policy, node))


PART = PolicyPart
