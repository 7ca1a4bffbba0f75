"""flow-aggregator.conf as it changes: a text that cannot work is refused with the reason, and the one before it stays in effect."""

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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from antrea.config.effect import InEffect

log = klog.logger(__name__)

PERIOD: Final = 1.0
"""Seconds between looks at the file, which kubelet exchanges at its own pace."""
REJECTED: Final = Metric(
    "antrea_flow_aggregator_configuration_rejected", "gauge", "ALPHA",
    "1 while the configuration file has a text that cannot work, and an earlier one is in effect.",
)  # fmt: skip


class ConfigurationFile:
    """The text in effect; another one is looked for while `follow` runs."""

    def __init__(self, path: Path) -> None:
        """Raises Invalid."""
        self._path = path
        self._now: InEffect[FlowAggregatorConfig, None] = begin(FlowAggregatorConfig, accept, read(path))
        self._seen = self._now.text
        self._log_unknown()

    @property
    def config(self) -> FlowAggregatorConfig:
        """What is in effect."""
        return self._now.config

    @property
    def metrics(self) -> str:
        """In Prometheus' format."""
        return REJECTED.text([Sample(bool(self._now.rejected))])

    async def follow(self, change: Callable[[FlowAggregatorConfig], Awaitable[bool]]) -> None:
        """Offer each configuration that comes to `change`, until that returns false: the program has to be built anew."""
        while True:
            await asyncio.sleep(PERIOD)
            if self.look() and not await change(self.config):
                return

    def look(self) -> bool:
        """Whether another configuration is in effect than before."""
        try:
            text = read(self._path)
        except Invalid as no:
            log.v(2).info("Failed to read the configuration", err=str(no))
            return False
        if text == self._seen:
            return False
        self._seen, before = text, self._now
        self._now = offer(before, accept, text)
        if self._now.rejected:
            log.error(
                "Rejected the configuration; the last valid one stays in effect", err=self._now.rejected
            )
            return False
        self._log_unknown()
        return self._now.config != before.config

    def _log_unknown(self) -> None:
        for unknown in self._now.unknown:
            log.warning("Unknown key in the configuration", err=unknown.sentence)
