"""A periodic probe of a part of this process, whose result the liveness check of the Pod serves to kubelet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = klog.logger(__name__)

PERIOD_SECONDS = 5.0
"""Between two probes."""


class LivenessProbe:
    """Runs `probe`, which raises Unavailable while the target does not respond; `target` names it in the log."""

    def __init__(
        self, target: str, probe: Callable[[], Awaitable[None]], *, period: float = PERIOD_SECONDS
    ) -> None:
        self._target = target
        self._probe = probe
        self._period = period
        self.trouble = ""
        """Why the last probe failed; empty if it succeeded."""

    async def run(self) -> None:
        """Probe until cancelled. A change of the result is logged once."""
        while True:
            await asyncio.sleep(self._period)
            trouble = ""
            try:
                await self._probe()
            except Unavailable as error:
                trouble = str(error)
            if trouble and trouble != self.trouble:
                log.warning("Liveness probe failed", target=self._target, err=trouble)
            elif self.trouble and not trouble:
                log.info("Liveness probe recovered", target=self._target)
            self.trouble = trouble
