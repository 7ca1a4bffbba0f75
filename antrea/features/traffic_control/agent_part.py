"""Effects of TrafficControl: the labels of Pods, Events, and what is missing on this Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.apis.shown import one_line
from antrea.config.agent import AgentConfig
from antrea.facts.node import Transport
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_part import Part
from antrea.features.network_policy.agent.rule import L7, PolicyRule
from antrea.features.traffic_control.agent import GATE, RecordTrouble, steering_of
from antrea.features.traffic_control.row import Steering, steerings_of
from antrea.features.traffic_control.switch_port import obstacle, usable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Act, Facts
    from antrea.features.framework.agent_part import AgentContext, Handler
    from antrea.host.ovs_port import Port
    from antrea.outside.http.handlers import Check

MAX_NAMED = 5
"""Maximum number of TrafficControls that a condition names."""


class TrafficControlPart(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent

    def acts(self) -> Mapping[type[Act], Handler]:
        return {RecordTrouble: self._record}

    def conditions(self) -> Mapping[str, Check]:
        return {
            "TrafficControlPortsMissing": self._lacking,
            "TrafficControlBypassed": self._bypassed,
            "TrafficControlOverlapped": self._overlapping,
        }

    def _lacking(self) -> str:
        facts = self._agent.facts
        lacking = [
            (row, port)
            for row in facts.all(Steering)
            for port in (row.target, row.returned)
            if port and usable(facts, port) is None
        ]
        if not lacking:
            return ""
        ports = sorted(
            f"{port.name!r} of {row.name}{_obstacle_text(facts, row, port)}" for row, port in lacking
        )
        closed = any(row.redirects and port == row.target for row, port in lacking)
        outcome = "; packets of Pods that are redirected to them are dropped until then" if closed else ""
        return (
            f"ports of TrafficControls are not on the bridge: {_named(ports)}: create the device, or name one that is not "
            f"the Node's own{outcome}"
        )

    def _overlapping(self) -> str:
        """Pods that more than one TrafficControl selects."""
        facts = self._agent.facts
        texts = []
        for pod in sorted(row.pod for row in facts.all(PodInterface)) if facts.all(Steering) else ():
            first, *others = [row.name for row in steerings_of(facts, pod)] or [""]
            texts += [f"{pod} follows {first} and not {other}" for other in others]
        if not texts:
            return ""
        return f"of several TrafficControls that select a Pod the oldest counts: {_named(texts)}"

    def _bypassed(self) -> str:
        facts = self._agent.facts
        if not facts.by(PolicyRule, "l7", L7):
            return ""
        counting = (steering_of(facts, pod) for pod in facts.all(PodInterface))
        counting_names = sorted({row.name for row in counting if row})
        if not counting_names:
            return ""
        return (
            f"connections that rules with l7Protocols judge are neither copied nor redirected by TrafficControls "
            f"{_named(counting_names)}: their packets go to the L7 engine alone"
        )

    async def _record(self, act: RecordTrouble) -> None:
        row = act.about
        about = core.ObjectReference(
            api_version="crd.antrea.io/v1alpha2", kind=GATE, name=row.name, uid=row.uid
        )
        self._agent.record(act.reason, act.message, warning=True, about=about)


def _obstacle_text(facts: Facts, row: Steering, port: Port) -> str:
    if facts.get(AgentConfig) is None or facts.get(Transport) is None:
        return ""
    why = obstacle(facts, row, port)
    return f" ({one_line(why)})" if why else ""


def _named(names: list[str]) -> str:
    """Join some names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


PART = TrafficControlPart
