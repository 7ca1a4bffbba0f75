"""Posts to antrea-controller what this Node advertises: soon after a change, and once a minute, since Nodes without reports are forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.controlplane import GROUP, VERSION
from antrea.apis.controlplane_report import NodeBgpSummary
from antrea.errors import Refused, Unavailable
from antrea.features.bgp_policy.advertisement import AdvertisedPrefix
from antrea.features.bgp_policy.api_resource import SUMMARIES
from antrea.features.bgp_policy.policy import EffectivePolicy
from antrea.features.bgp_policy.state import BgpPeerState
from antrea.features.bgp_policy.summary import summary
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts
    from antrea.features.bgp_policy.agent_part.control import FrrControl
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
PATH: Final = f"/apis/{GROUP}/{VERSION}/{SUMMARIES}"
PAUSE: Final = 1.0
"""Seconds between two looks, so that changes that come together are one report."""
HEARTBEAT: Final = 60.0
"""Seconds after which an unchanged summary is posted again."""


class SummaryReport:
    """Reporter of one Node."""

    def __init__(
        self,
        facts: Facts,
        node: str,
        control: FrrControl,
        controller: Callable[[], Kube | None],
        *,
        pause: float = PAUSE,
    ) -> None:
        """`controller` returns the connection to it; `pause` is in seconds."""
        self._facts, self._node, self._control, self._controller = facts, node, control, controller
        self._pause = pause
        self._posted: NodeBgpSummary | None = None
        """The last one that the controller took."""
        self._to: Kube | None = None
        """The connection by which it was posted."""
        self._again = 0.0
        """When it is posted again."""
        self._trouble = ""

    async def run(self) -> None:
        """Report until cancelled."""
        with self._facts.watch(AdvertisedPrefix, BgpPeerState, EffectivePolicy) as changed:
            seen, current = -2, NodeBgpSummary()
            while True:
                if changed.is_set() or self._control.aligned != seen:
                    changed.clear()
                    seen = self._control.aligned
                    current = summary(self._facts, self._node, self._control.advertised)
                if self._is_due(current):
                    await self._post(current)
                await asyncio.sleep(self._pause)

    def _is_due(self, current: NodeBgpSummary) -> bool:
        if self._facts.get(EffectivePolicy) is None and (self._posted is None or not self._posted.objects):
            return False
        now = asyncio.get_running_loop().time()
        return current != self._posted or now >= self._again or self._controller() is not self._to

    async def _post(self, current: NodeBgpSummary) -> None:
        if (controller := self._controller()) is None:
            return
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "NodeBgpSummary", **msgspec.to_builtins(current)}
        try:
            await controller.create(PATH, body)
        except (Refused, Unavailable) as error:
            if str(error) != self._trouble:
                log.warning("Failed to report what is advertised", err=str(error))
            self._trouble = str(error)
            return
        self._trouble, self._posted, self._to = "", current, controller
        self._again = asyncio.get_running_loop().time() + HEARTBEAT
