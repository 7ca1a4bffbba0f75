"""Which collector the configuration names: keys of older releases win over those in use, as upstream reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.shape import Collector, collector

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig


def collector_of(config: AgentConfig) -> Collector:
    """The one of `flowExporter.flowCollectorAddr`."""
    return collector(config.flow_collector_addr or config.flow_exporter.flow_collector_addr)
