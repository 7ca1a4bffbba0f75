"""Packets that a bridge really receives, and what an agent reports of its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from antrea.agent.switch.traffic_statistics import TrafficStatistics
from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.apis.stats import TrafficStats
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

    from antrea.engine import Engine
    from antrea.features.framework.traffic import Counted
    from antrea.openflow.flow_count import FlowCount
    from antrea.openflow.pipeline import Pipeline

V4, V6 = 106, 126
"""Bytes of a datagram of `receive` with its headers."""


async def _no_counters() -> tuple[FlowCount, ...]:
    return ()


def receive(ovs: OvsBridge, port: str, macs: tuple[str, str], ips: tuple[str, str], **udp: int) -> None:
    """UDP with 64 bytes of content, from and to these; `udp` are src and dst."""
    form = (
        "eth_type(0x86dd),ipv6(src={},dst={},label=0,proto=17,tclass=0,hlimit=64,frag=no)"
        if ":" in ips[0]
        else "eth_type(0x0800),ipv4(src={},dst={},proto=17,tos=0,ttl=64,frag=no)"
    )
    head = "in_port(0),eth(src={},dst={})".format(*macs)
    text = f"{head},{form.format(*ips)},udp(src={udp['src']},dst={udp['dst']})"
    ovs.appctl("netdev-dummy/receive", port, text)


class Reported:
    """A controller that adds up what agents of this Node, a new one each time, report of `counted`."""

    def __init__(self, ovs: OvsBridge, engine: Engine, pipeline: Pipeline, counted: Counted) -> None:
        self._ovs, self._engine, self._pipeline, self._counted = ovs, engine, pipeline, counted
        self._sums: dict[str, TrafficStats] = {}

    async def ask(self, path: str, body: Any, kind: type[NodeStatsSummary]) -> NodeStatsSummary:
        found = msgspec.convert(body, kind)
        for row in (*found.network_policies, *found.antrea_cluster_network_policies, *found.egresses):
            by = sum((rule.traffic_stats for rule in row.rule_traffic_stats), row.traffic_stats)
            name = row.network_policy.name
            self._sums[name] = self._sums.get(name, TrafficStats()) + by
        return NodeStatsSummary()

    async def sums(self, keep: Path) -> dict[str, TrafficStats]:
        """By name."""
        self._ovs.appctl("revalidator/purge")
        agent = TrafficStatistics(
            self._engine.facts, Ofctl(self._ovs.process.directory / "br-int.mgmt"), lambda: self,  # type: ignore[arg-type, return-value]
            (self._counted,), node="n1", tables=self._pipeline.ids, counters=_no_counters, keep=keep,
        )  # fmt: skip
        agent.read()
        await agent.turn()
        return self._sums

    def replace_all(self) -> None:
        """As at another start: every flow, under the cookies of its round."""
        flows = [
            one.text(self._pipeline, 2) for one in self._engine.standing().values() if hasattr(one, "match")
        ]
        self._ovs.bundle(f"flow add {flow}" for flow in flows)
