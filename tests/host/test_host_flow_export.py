"""Connections that are there, and those that a rule denies, come to a collector as records: real packets, real connection tracking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from agent_context import agent_context
from policy_node import CONFIG, OUTSIDE, SERVER, WEB, PolicyNode

from antrea.agent.flow_export.part import FlowExportPart
from antrea.agent.network_policy.part import PolicyPart
from antrea.apis import controlplane as cp
from antrea.apis.flow import FlowType, RuleAction
from antrea.config.agent_sections import FlowExporter
from antrea.features.network_policy.agent.received import SentAppliedMember
from antrea.outside.ipfix.collector import Collector
from tests.unit.features.policy_world import ANY, native, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Namespaces

    from antrea.apis.flow import FlowRecord
    from antrea.config.agent import AgentConfig


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 (records come from the network)
            await asyncio.sleep(0.05)


@pytest.fixture
def node(netns: Namespaces) -> Iterator[PolicyNode]:
    with PolicyNode(netns).standing() as found:
        yield found


def exporting_to(port: int, node: PolicyNode) -> AgentConfig:
    export = FlowExporter(
        enable=True, flow_collector_addr=f"127.0.0.1:{port}:tcp",
        flow_poll_interval="1s", active_flow_export_timeout="1s",
    )  # fmt: skip
    return msgspec.structs.replace(
        CONFIG,
        flow_exporter=export,
        feature_gates={"FlowExporter": True},
        ovs_run_dir=str(node.switch.directory),
    )


def found(got: list[FlowRecord], source: str, port: int, done: RuleAction) -> list[FlowRecord]:
    ends = [one for one in got if (one.source_ip, one.destination_transport_port) == (source, port)]
    return [one for one in ends if one.ingress_network_policy_rule_action == done]


def expect_allowed(got: list[FlowRecord]) -> None:
    one = found(got, "10.10.0.8", 8099, RuleAction.NONE)[0]
    assert (one.source_pod_name, one.destination_pod_name, one.source_node_name) == (
        "near",
        "web",
        "n1",
    )
    assert (one.protocol_identifier, one.flow_type) == (6, FlowType.INTRA_NODE)
    one = found(got, OUTSIDE[1], 8099, RuleAction.NONE)[0]
    assert (one.destination_ip, one.flow_type) == (WEB[1], FlowType.FROM_EXTERNAL)


@pytest.mark.parametrize("action", ["Drop", "Reject"])
async def test_allowed_and_denied_connections_are_exported_with_pods_and_rules(
    node: PolicyNode, action: str
) -> None:
    got: list[FlowRecord] = []
    ports: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", ports.put_nowait))
    config = exporting_to(await ports.get(), node)
    context = agent_context(node.facts, config)
    context.parts.append(policies := PolicyPart(context))
    part = FlowExportPart(context)

    async with node.agent(config, "FlowExporter") as engine:
        node.policies.denied = policies.packets.denied
        exporting = asyncio.create_task(part.run())
        with node.serving(node.pods["web"], SERVER):
            for source, to in (("near", WEB[0]), ("outside", WEB[1])):
                assert await asyncio.to_thread(node.hears, source, to, "SOCK_STREAM") == "answered"
            await until(
                lambda: (
                    found(got, "10.10.0.8", 8099, RuleAction.NONE)
                    and found(got, OUTSIDE[1], 8099, RuleAction.NONE)
                )
            )
            expect_allowed(got)
            member = cp.GroupMember(pod=cp.PodReference(name="web", namespace="shop"))
            for row in (
                native("in", "web", rule("In", ANY, action=action)),
                SentAppliedMember("web", member),
            ):
                node.facts.put(row)
            await engine.quiet()
            denied = await asyncio.to_thread(node.hears, "near", WEB[0], "SOCK_STREAM", seconds=2)
            assert denied == {"Drop": "timeout", "Reject": "ECONNREFUSED"}[action]
            await until(lambda: found(got, "10.10.0.8", 8099, RuleAction[action.upper()]))
            one = found(got, "10.10.0.8", 8099, RuleAction[action.upper()])[0]
            assert (one.source_pod_name, one.destination_pod_name) == ("near", "web")
            assert (one.ingress_network_policy_name, one.ingress_network_policy_type) == ("in", 3)
            assert one.packet_total_count >= 1
            assert one.octet_total_count >= 40
        exporting.cancel()
        serving.cancel()
        await asyncio.gather(exporting, serving, return_exceptions=True)
