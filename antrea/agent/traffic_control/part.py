"""Effects of TrafficControl: the labels of Pods, Events, and what is missing on this Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.part import Part
from antrea.apis import core
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.network_policy.agent.rule import L7, PolicyRule
from antrea.features.traffic_control.agent import GATE, RecordOverlap, steering_of
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import SteeredPod, Steering, steered_pod
from antrea.outside.kube.resource_feed import ResourceFeed
from antrea.outside.netlink.host_feed import link_feed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.agent.part import AgentContext, Connected, Handler
    from antrea.engine import Act, Feed
    from antrea.outside.http.handlers import Check

MOST_NAMED = 5
"""TrafficControls that a condition names."""


class TrafficControlPart(Part):
    """Of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent

    def feeds(self, connected: Connected) -> Mapping[str, Feed]:
        here = {"fieldSelector": f"spec.nodeName={self._agent.node}"}
        feed = ResourceFeed(
            self._agent.kube, "/api/v1/pods", core.Pod, fact=SteeredPod, row=steered_pod, query=here
        )
        return {"Pods with labels": feed, "interfaces": link_feed()}

    def acts(self) -> Mapping[type[Act], Handler]:
        return {RecordOverlap: self._record}

    def conditions(self) -> Mapping[str, Check]:
        return {
            "TrafficControlPortsMissing": self._lacking,
            "TrafficControlBypassed": self._bypassed,
        }

    def _bypassed(self) -> str:
        facts = self._agent.facts
        if not facts.by(PolicyRule, "l7", L7):
            return ""
        counting = (steering_of(facts, pod) for pod in facts.all(PodInterface))
        found = sorted({row.name for row in counting if row})
        if not found:
            return ""
        named = ", ".join(found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        return (
            f"connections that rules with l7Protocols judge are neither copied nor redirected by TrafficControls "
            f"{named}{more}: their packets go to the L7 engine alone"
        )

    def _lacking(self) -> str:
        facts = self._agent.facts
        there = {row.name for row in facts.all(OvsPort) if row.type == PORT_TYPE}
        lacking = [
            (row, port)
            for row in facts.all(Steering)
            for port in (row.target, row.returned)
            if port and port.name not in there
        ]
        if not lacking:
            return ""
        found = sorted(f"{port.name!r} of {row.name}" for row, port in lacking)
        closed = any(row.redirects and port == row.target for row, port in lacking)
        outcome = "; packets of Pods that are redirected to them are dropped until then" if closed else ""
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        named = ", ".join(found[:MOST_NAMED]) + more
        return (
            f"ports of TrafficControls are not on the bridge: {named}: create the device, or name one that is not "
            f"the Node's own{outcome}"
        )

    async def _record(self, act: RecordOverlap) -> None:
        about = core.ObjectReference(
            api_version="crd.antrea.io/v1alpha2", kind=GATE, name=act.name, uid=act.uid
        )
        self._agent.record("TrafficControlOverlapped", act.message, warning=True, about=about)


PART = TrafficControlPart
