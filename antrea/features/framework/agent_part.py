"""Effects of a feature in the agent: what its pure modules cannot do.

A feature `x` has one if there is a module `antrea/features/x/agent_part.py`, or `agent_part/part.py`, whose `PART` makes it. The agent makes a part where the
gates leave anything on of what the feature declares to it, and collects what the parts provide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Engine, Facts, Feed, Sink
from antrea.features import FEATURES
from antrea.features.framework.gate import EnabledGates
from antrea.features.framework.plug import module_of
from antrea.openflow.packet_in import PacketIn
from antrea.openflow.packet_out import PacketOut
from antrea.outside.controlplane.client import Controlplane
from antrea.outside.kube.client import Kube
from antrea.outside.kube.event_recorder import TRIES, EventRecorder
from antrea.outside.kube.node_recorder import node_recorder
from antrea.outside.log.metrics import Sample
from antrea.outside.support_bundle.plan import Order

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from antrea.apis.core import ObjectReference
    from antrea.facts.node import ThisNode
    from antrea.features.framework.admission import Watched
    from antrea.openflow.fields import PacketIn as PacketInCategory
    from antrea.outside.http.handlers import Check
    from antrea.outside.ovsdb.client import Ovsdb

SIDE = "agent_part"
"""Module, or folder with a module `part`, of a feature with effects in the agent."""
Query = Mapping[str, str]
Route = Callable[[Query], Any]
"""Function that returns the answer to GET, as JSON, or an awaitable of it. Raises NotFound, Invalid, Unavailable."""
Handler = Callable[[Any], Awaitable[None]]
"""Function that performs an act."""
P = TypeVar("P", bound="Part")


class FlowSelection(Protocol):
    """Flows and groups that belong together, for `antctl get ovsflows`."""

    @property
    def groups(self) -> frozenset[int]:
        """Numbers of the groups."""

    def matches(self, flow: str) -> bool:
        """Whether a line of `ovs-ofctl dump-flows` belongs to the selection."""


class Connected(NamedTuple):
    """Connections that are available once OVSDB and the Node are."""

    db: Ovsdb
    node: ThisNode


class AgentContext(msgspec.Struct, kw_only=True):
    """Services of the agent that a part may use."""

    node: str
    """Name of this Node."""
    config: AgentConfig
    gates: EnabledGates
    facts: Facts
    kube: Kube
    controlplane: Controlplane
    """The connection to antrea-controller."""
    run_dir: Path
    """Directory of files that outlive the agent, but not the Node."""
    ready: asyncio.Event
    """Set once Pods can be connected."""
    engine: Callable[[], Engine]
    """Return the engine, which exists when acts are done; not before."""
    begin: Callable[[Coroutine[Any, Any, None], str], None]
    """Run this under that name in the background, until the agent ends."""
    send: Callable[[PacketOut], None]
    """Send a packet through the switch."""
    resume: Callable[[PacketIn], None]
    """Resume a packet that the switch holds."""
    bundle: Callable[[], Awaitable[Order]]
    """Collect a support bundle of this agent."""
    save_state: Callable[[], None]
    """Save the controller's state soon, because what is kept of it has changed (`AgentFeature.kept`)."""
    parts: list[Part] = []
    """Parts that were made so far, in order of the features."""

    def part(self, kind: type[P]) -> P:
        """Return the part of another feature that is listed before. Raises LookupError if there is none."""
        for part in self.parts:
            if isinstance(part, kind):
                return part
        raise LookupError(f"{kind.__name__} is off, or listed later in antrea/features/__init__.py")

    def record(
        self, reason: str, message: str, *, warning: bool = False, about: ObjectReference | None = None
    ) -> None:
        """Write an Event about an object; without one, about this Node."""
        recorder = EventRecorder(about, "antrea-agent", self.node) if about else node_recorder(self.node)
        done = recorder.record(self.kube, reason, message, warning=warning, tries=TRIES)
        self.begin(done, f"Event {reason}")


class NotFound(Exception):
    """No object has the name that a route was asked for."""


class Part:
    """Base class of parts. Every method has a default for features without such an effect: override what the feature has."""

    essential_feeds: ClassVar[frozenset[str]] = frozenset()
    """Names of feeds whose failure ends the agent; all others fail alone, as `run` does, and are restarted."""

    def acts(self) -> Mapping[type[Act], Handler]:
        """Handlers of the acts that its units yield."""
        return {}

    def sinks(self) -> Mapping[type, Sink]:
        """Sinks of entries of the feature's own kinds."""
        return {}

    def packet_ins(self) -> Mapping[PacketInCategory, Callable[[PacketIn], None]]:
        """Handlers of packets that its flows send to the agent, by category."""
        return {}

    def feeds(self, _connected: Connected) -> Mapping[str, Feed]:
        """Feeds by what they supply. Objects of the API need none: see `watched`."""
        return {}

    def watched(self) -> Iterable[Watched]:
        """Watches of kube-apiserver that depend on the configuration; all others are in `AgentFeature.watched`."""
        return ()

    async def run(self) -> None:
        """Run other work of the feature until cancelled; called when the engine starts, and again after a failure."""

    def owns(self, _interface: str) -> bool:
        """Whether the feature creates this interface: addresses and routes are restored when the interface comes back."""
        return False

    def routes(self) -> Mapping[str, Route]:
        """Paths of the agent's API, such as /memberlist."""
        return {}

    def flow_selections(self) -> Mapping[str, Callable[[str, str], FlowSelection]]:
        """Parameters of /ovsflows beside its own: each gives the flows of an object by its namespace and name."""
        return {}

    def metrics(self) -> str:
        """Metrics in Prometheus' format."""
        return ""

    def conditions(self) -> Mapping[str, Check]:
        """Conditions of AntreaAgentInfo that are present only while their check fails."""
        return {}

    def agent_info(self) -> Mapping[str, Any]:
        """Fields of AntreaAgentInfo."""
        return {}

    def bundle(self) -> Mapping[str, Any]:
        """Files of a support bundle by name; a value other than text is written as YAML."""
        return {}

    async def farewell(self) -> None:
        """Hand over what other Nodes can take, before this process ends; not called when a new configuration restarts the
        agent.
        """

    async def close(self) -> None:
        """Release the part's resources; called last."""


def make_parts(context: AgentContext, on: Container[str], names: Iterable[str] = FEATURES) -> list[Part]:
    """Make the parts of the features that are `on`, by their folders' names, in order."""
    for name in names:
        module = module_of(name, SIDE) if name in on else None
        if module is not None:
            part = module.PART(context)
            if not isinstance(part, Part):
                raise TypeError(f"{module.__name__}.PART must make a Part")
            context.parts.append(part)
    return context.parts


def idle_metrics(on: Container[str], names: Iterable[str] = FEATURES) -> str:
    """Render the metrics of the features that are off, each 0: `METRICS` of module `idle_metrics_part` of their folders."""
    modules = (module_of(name, "idle_metrics_part") for name in names if name not in on)
    return "".join(metric.text([Sample(0)]) for module in modules if module for metric in module.METRICS)
