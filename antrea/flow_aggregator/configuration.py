"""flow-aggregator.conf as it changes: a text that cannot work is refused with the reason, and the one before it stays in effect.

Warnings, such as the reason, are in the log and in Events of the ConfigMap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.config.effect import begin, offer
from antrea.config.flow_aggregator import FlowAggregatorConfig
from antrea.config.load import read
from antrea.errors import Invalid
from antrea.flow_aggregator.acceptance import accept
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.reload.supervisor import ACCEPTED, sentences

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from antrea.config.effect import InEffect
    from antrea.outside.kube.event_recorder import EventQueue

log = klog.logger(__name__)

PERIOD: Final = 1.0
"""Seconds between looks at the file, which kubelet exchanges at its own pace."""
REJECTED: Final = Metric(
    "antrea_flow_aggregator_configuration_rejected", "gauge", "ALPHA",
    "1 while the configuration file has a text that cannot work, and an earlier one is in effect.",
)  # fmt: skip


class ConfigurationFile:
    """The text in effect; another one is looked for while `follow` runs."""

    def __init__(self, path: Path, events: EventQueue) -> None:
        """Raises Invalid."""
        self._path, self._events = path, events
        self._now: InEffect[FlowAggregatorConfig, None] = begin(FlowAggregatorConfig, accept, read(path))
        self._seen = self._now.text
        self._warn(None)

    @property
    def config(self) -> FlowAggregatorConfig:
        """Configuration in effect."""
        return self._now.config

    @property
    def rejected(self) -> str:
        """Why a newer text is not in effect; empty if none was refused."""
        return self._now.rejected

    @property
    def metrics(self) -> str:
        """In Prometheus' format."""
        return REJECTED.text([Sample(bool(self._now.rejected))])

    async def follow(self, change: Callable[[FlowAggregatorConfig], Awaitable[bool]]) -> None:
        """Offer each configuration that comes to `change`, until that returns false: the program has to be built anew."""
        while True:
            await asyncio.sleep(PERIOD)
            if self.reload() and not await change(self.config):
                return

    def reload(self) -> bool:
        """Read the file; return whether another configuration is in effect than before."""
        try:
            text = read(self._path)
        except Invalid as error:
            log.v(2).info("Failed to read the configuration", err=str(error))
            return False
        if text == self._seen:
            return False
        self._seen, before = text, self._now
        self._now = offer(before, accept, text)
        self._warn(before)
        return self._now.config != before.config

    def _warn(self, before: InEffect[FlowAggregatorConfig, None] | None) -> None:
        """Log warnings that `before` did not have."""
        for line in sentences(before, self._now):
            log.warning("Configuration", reason=line.reason, message=line.message)
            self._events.record(line.reason, line.message, warning=True)
        if before and before.rejected and not self._now.rejected:
            message = f"{FlowAggregatorConfig.file}: accepted and in effect, after one that was refused"
            log.info("Configuration", reason=ACCEPTED, message=message)
            self._events.record(ACCEPTED, message)
