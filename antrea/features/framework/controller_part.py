"""Effects of a feature in the controller: what its pure modules cannot do.

A feature `x` has one if there is a module `antrea/features/x/controller_part.py`, or `controller_part/part.py`, whose `PART` makes it. The controller makes a part where
the gates leave anything on of what the feature declares to it, and collects what the parts provide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.config.controller import ControllerConfig
from antrea.engine import Act, Facts, Feed, Sink
from antrea.features import FEATURES
from antrea.features.framework.plug import module_of
from antrea.outside.kube.client import Kube
from antrea.outside.kube.leadership import Leadership

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from antrea.features.framework.admission import Watched

SIDE = "controller_part"
"""Module, or folder with a module `part`, of a feature with effects in the controller."""
Handler = Callable[[Any], Awaitable[None]]
"""Function that performs an act."""


class ControllerContext(msgspec.Struct, kw_only=True):
    """Context of the controller that a part may use."""

    config: ControllerConfig
    gates: frozenset[str]
    """Enabled feature gates."""
    facts: Facts
    kube: Kube
    """Writes only while this replica leads."""
    lead: Leadership
    namespace: str
    """Namespace of the controller."""


class ControllerPart:
    """Base class of parts. Every method has a default for features without such an effect: override what the feature has."""

    def acts(self) -> Mapping[type[Act], Handler]:
        """Handlers of the acts that its units yield."""
        return {}

    def sinks(self) -> Mapping[type, Sink]:
        """Sinks of entries of its own kinds."""
        return {}

    def feeds(self) -> Mapping[str, Feed]:
        """Feeds by what they supply. Objects of the API need none: see `watched`."""
        return {}

    def watched(self) -> Iterable[Watched]:
        """Watches of kube-apiserver that no policy depends on: no new leader waits for them, unlike `ControllerFeature.watched`."""
        return ()

    async def run(self) -> None:
        """Run whatever else there is until cancelled; called again after it failed."""

    async def run_while_leading(self) -> None:
        """Run what only the leader does; called whenever this replica begins to lead, cancelled when that ends."""

    def left_span(self, policy: str, nodes: Iterable[str]) -> None:
        """Handle a published policy, by its UID, that is no longer for these Nodes, whose agents reported on it."""

    def metrics(self) -> str:
        """Metrics in Prometheus' format."""
        return ""


def make_parts(
    context: ControllerContext, on: Container[str], names: Iterable[str] = FEATURES
) -> tuple[ControllerPart, ...]:
    """Make the parts of the features that are `on`, by their folders' names, in order."""
    parts: list[ControllerPart] = []
    for name in names:
        module = module_of(name, SIDE) if name in on else None
        if module is not None:
            part = module.PART(context)
            if not isinstance(part, ControllerPart):
                raise TypeError(f"{module.__name__}.PART must make a ControllerPart")
            parts.append(part)
    return tuple(parts)
