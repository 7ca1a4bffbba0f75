"""State that the agent shows, through its API and as its AntreaAgentInfo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from antrea.agent.cni.start_metrics import PodStartMetrics
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.features.framework.agent_part import Part
from antrea.features.framework.gate import EnabledGates
from antrea.outside.http.handlers import Check
from antrea.outside.isolation import Isolation
from antrea.outside.vswitch.conntrack import Usage
from antrea.outside.vswitch.operation_metrics import FlowOperations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Dumper(Protocol):
    """The method of outside.ofctl_run.Ofctl that is needed here."""

    def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        """Yield the lines of a dump without its header. Raises Unavailable."""


def _unknown() -> str:
    return ""


def _never() -> bool:
    return False


class AgentView(msgspec.Struct):
    """State that the API shows. `tables` maps a table's name to its number; checks return "" or their error.

    `conditions` are those of its health beside AgentHealthy, which is every check together.
    """

    in_effect: Callable[[], InEffect[AgentConfig, EnabledGates]]
    facts: Facts
    ofctl: Dumper
    tables: dict[str, int]
    ready: dict[str, Check] = {}
    live: dict[str, Check] = {}
    conditions: dict[str, Check] = {}
    tolerant: Callable[[], bool] = _never
    """Whether probes succeed unconditionally: an agent that worked is being replaced by the next one."""
    troubles: dict[str, Check] = {}
    """Further conditions, present and True only while their check fails."""
    ovs_version: Callable[[], str] = _unknown
    """Return the version of OVS. Raises Unavailable."""
    isolation: Isolation = msgspec.field(default_factory=Isolation)
    """Runner of the parts, which counts their failures."""
    parts: list[Part] = []
    """Parts of the features that are on; each shows more."""
    idle_metrics: str = ""
    """Metrics of the features that are off, in Prometheus' format."""
    starts: PodStartMetrics = msgspec.field(default_factory=PodStartMetrics)
    operations: FlowOperations = msgspec.field(default_factory=FlowOperations)
    packets: Callable[[], str] = _unknown
    """Metrics of packets that were dropped between switch and agent."""
    overflow: Callable[[], Awaitable[int]] | None = None
    """Number of packets that the switch dropped because the agent did not take them in time. Raises Unavailable."""
    connections: Callable[[], Awaitable[Usage]] | None = None
    """Number of tracked connections, and its maximum. Raises Unavailable."""
    unread_metrics: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of failures to read metrics, by source."""

    @property
    def now(self) -> InEffect[AgentConfig, EnabledGates]:
        """The configuration in effect."""
        return self.in_effect()

    @property
    def config(self) -> AgentConfig:
        """Configuration that the agent runs with."""
        return self.now.config
