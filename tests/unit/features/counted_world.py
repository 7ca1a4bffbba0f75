"""An agent that reports what flows counted, between a switch that counts and a controller that adds up."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.agent.switch.traffic_statistics import PATH, TrafficStatistics
from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.apis.meta import ObjectMetadata
from antrea.apis.stats import TrafficStats
from antrea.errors import Unavailable
from antrea.openflow.flow import Flow
from antrea.openflow.flow_count import FlowCount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antrea.engine import Facts
    from antrea.features.framework.traffic import Counted
    from antrea.openflow.pipeline import Pipeline


class Switch:
    """Flows of the counted tables, those in which `counts` is found; numbers of the tables are the pipeline's."""

    def __init__(self, facts: Facts, engine: Any, pipeline: Pipeline, counted: Counted, counts: str) -> None:
        self.facts, self._engine, self.pipeline, self.counted = facts, engine, pipeline, counted
        self._counts = re.compile(counts)
        self.counts: dict[str, tuple[int, int]] = {}
        self._does: dict[str, str] = {}
        self.counters: dict[str, tuple[int, int]] = {}
        self.away = False
        self.follow()

    def follow(self) -> None:
        """The flows as they are: what stands keeps its counters, whatever it does."""
        self._engine.plan()
        entries = self._engine.standing().values()
        found = [one for one in entries if isinstance(one, Flow) and one.table in self.counted.tables]
        texts = (one.text(self.pipeline, 1).partition(",")[2].split(" actions=") for one in found)
        self._does = {flow: does for flow, does in sorted(texts) if self._counts.search(flow)}
        self.counts = {flow: self.counts.get(flow, (0, 0)) for flow in self._does}

    def count(self, pattern: str, packets: int, size: int = 100) -> None:
        """Packets hit the one flow that matches."""
        (flow,) = (flow for flow in self.counts if re.search(pattern, flow))
        before = self.counts[flow]
        self.counts[flow] = before[0] + packets, before[1] + packets * size

    async def named(self) -> list[FlowCount]:
        """Counters of nftables."""
        return [FlowCount(name, *count) for name, count in self.counters.items()]

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        assert command == "dump-flows"
        if self.away:
            raise Unavailable("the switch")
        for flow, (packets, size) in self.counts.items():
            table, _, match = flow.partition(",")
            if table == arguments[0]:
                head = f"cookie=0x1, duration=1.5s, {table}, n_packets={packets}, n_bytes={size}"
                yield f"{head}, {match} actions={self._does[flow]}"


class Controller:
    """Adds up what it is told."""

    def __init__(self) -> None:
        self.away = False
        self.told: list[NodeStatsSummary] = []

    async def ask(self, path: str, body: Any, kind: type[NodeStatsSummary]) -> NodeStatsSummary:
        assert (path, body["kind"], body["apiVersion"]) == (
            PATH, "NodeStatsSummary", "controlplane.antrea.io/v1beta2",
        )  # fmt: skip
        if self.away:
            raise Unavailable("antrea-controller")
        found = msgspec.convert(body, kind)
        if msgspec.structs.replace(found, metadata=ObjectMetadata()) != NodeStatsSummary():
            self.told.append(found)
        return NodeStatsSummary()

    def sums(self) -> dict[tuple[str, str], TrafficStats]:
        """By policy and rule; of Egresses by name and UID."""
        found: dict[tuple[str, str], TrafficStats] = {}
        for summary in self.told:
            assert summary.metadata.name == "n1"
            one = summary
            whole = [((row.network_policy.name, ""), row.traffic_stats) for row in one.network_policies]
            whole += [
                ((row.network_policy.name, row.network_policy.uid), row.traffic_stats) for row in one.egresses
            ]
            ruled = (*one.antrea_cluster_network_policies, *one.antrea_network_policies)
            rules = [
                ((row.network_policy.name, each.name), each.traffic_stats)
                for row in ruled
                for each in row.rule_traffic_stats
            ]
            for key, by in (*whole, *rules):
                found[key] = found.get(key, TrafficStats()) + by
        return found


class World:
    """The agent; its file outlives it."""

    def __init__(self, keep: Path, switch: Switch) -> None:
        self.keep, self.switch = keep, switch
        self.controller = Controller()
        self.agent = self.new_agent()

    def new_agent(self) -> TrafficStatistics:
        self.agent = TrafficStatistics(
            self.switch.facts, self.switch, lambda: self.controller,  # type: ignore[arg-type, return-value]
            (self.switch.counted,), node="n1", tables=self.switch.pipeline.ids, counters=self.switch.named, keep=self.keep,
        )  # fmt: skip
        self.agent.read()
        return self.agent

    def turn(self) -> dict[tuple[str, str], TrafficStats]:
        asyncio.run(self.agent.turn())
        return self.controller.sums()


def counted(packets: int, size: int, sessions: int = 0) -> TrafficStats:
    return TrafficStats(packets=packets, bytes=size, sessions=sessions)
