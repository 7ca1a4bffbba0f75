"""What many Traceflows leave behind on a Node: in the switch, among the facts, in the engine and in the part that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_context import agent_context
from policy_switch import GATEWAY
from traced_node import DB, DENYING, WEB, spec, traced_node

from antrea.features.traceflow.agent import SeenTrace
from antrea.features.traceflow.agent_part.part import TraceflowPart
from antrea.features.traceflow.preparation import PreparedTrace, prepared
from antrea.features.traceflow.trace import TAGS, RunningTrace
from antrea.openflow.fields import TRACE_INJECTED_REG_MARK
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.frame import frame
from antrea.openflow.packet_out import PacketOut

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ovs_bridge import OvsBridge
    from traced_node import Node


def discard(work: Coroutine[Any, Any, None], _: str) -> None:
    """There is no API server to write a result to."""
    work.close()


async def one_round(node: Node, number: int) -> None:
    """Every other packet is delivered, and the others are dropped by a policy."""
    six = bool(number % 2)
    traces = [
        RunningTrace(
            f"t{number}-{tag}", f"u{number}-{tag}", tag, spec(six=six, destination={"ip": to.ips[six]})
        )
        for tag, to in zip(TAGS, (DB, DENYING) * len(TAGS), strict=False)
    ]
    for trace in traces:
        node.facts.put(trace)
        node.facts.put(prepared(node.facts, trace, WEB, None))
    await node.step()
    before = len(node.heard)
    for trace in traces:
        headers = node.facts.need(PreparedTrace, trace.name).headers
        mac = headers.destination_mac or GATEWAY.mac
        headers = msgspec.structs.replace(headers, dscp=trace.tag, destination_mac=mac, source_port=40000)
        node.packets.send(PacketOut(frame(headers), WEB.ofport, (TRACE_INJECTED_REG_MARK,)))
    await node.told(before + len(traces))
    for trace in traces:
        node.facts.drop(RunningTrace, trace.name)
    await node.step()


@pytest.mark.parametrize("rounds", [4, pytest.param(72, marks=pytest.mark.wide)])
async def test_traces_leave_nothing_behind(ovs: OvsBridge, rounds: int) -> None:
    """Of 14 at once, in IPv4 and IPv6 in turn: 56, and 1,008."""
    async with traced_node(ovs) as node:
        part = TraceflowPart(agent_context(node.facts, begin=discard))
        handle = part.packet_ins()[Category.TRACEFLOW]
        flows, entries = ovs.dump(), dict(node.engine.standing())
        for number in range(rounds):
            begun = len(node.heard)
            await one_round(node, number)
            for found in node.heard[begun:]:
                handle(found)
        assert len(node.heard) == rounds * len(TAGS)
        assert [len(node.facts.all(kind)) for kind in (RunningTrace, PreparedTrace, SeenTrace)] == [0, 0, 0]
        assert node.engine.standing() == entries
        assert sorted(ovs.dump()) == sorted(flows)
        assert sum(len(value) for value in vars(part).values() if isinstance(value, dict)) == 0
