"""Flow collector of the configuration: keys of older releases take precedence, as upstream reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.shape import Collector, collector

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig


def collector_of(config: AgentConfig) -> Collector:
    """Return the collector of `flowExporter.flowCollectorAddr`."""
    return collector(config.flow_collector_addr or config.flow_exporter.flow_collector_addr)
