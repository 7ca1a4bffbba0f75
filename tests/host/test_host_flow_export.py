"""Connections that are there, and those that a rule denies, come to a collector as records: real packets, real connection tracking."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_context import agent_context
from policy_node import CONFIG, OUTSIDE, SERVER, WEB, PolicyNode

from antrea.apis import controlplane as cp
from antrea.apis.flow import FlowType, RuleAction
from antrea.config.agent_sections import FlowExporter
from antrea.facts.flow_destination import FlowDestination
from antrea.facts.ovs import PodInterface
from antrea.features.flow_export.agent_part import export
from antrea.features.flow_export.agent_part.part import CONDITION, FlowExportPart
from antrea.features.network_policy.agent.received import SentAppliedMember
from antrea.features.network_policy.agent_part.part import PolicyPart
from antrea.outside.ipfix.collector import Collector
from antrea.outside.nftables.pod_counters import TABLE
from tests.unit.features.policy_world import ANY, native, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

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


def exporting_to(port: int, node: PolicyNode, *, enable: bool = True) -> AgentConfig:
    exporter = FlowExporter(
        enable=enable, flow_collector_addr=f"127.0.0.1:{port}:tcp",
        flow_poll_interval="1s", active_flow_export_timeout="1s",
    )  # fmt: skip
    return msgspec.structs.replace(
        CONFIG,
        flow_exporter=exporter,
        feature_gates={"FlowExporter": True},
        ovs_run_dir=str(node.switch.directory),
    )


def found(got: list[FlowRecord], source: str, port: int, done: RuleAction) -> list[FlowRecord]:
    ends = [one for one in got if (one.source_ip, one.destination_transport_port) == (source, port)]
    return [one for one in ends if one.ingress_network_policy_rule_action == done]


def kernel_counts() -> set[str]:
    """Settings without which the kernel datapath has neither counters nor times of connections."""
    return {
        Path("/proc/sys/net/netfilter", f"nf_conntrack_{name}").read_text().strip()
        for name in ("acct", "timestamp")
    }


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


async def test_the_kernel_counts_the_connections_of_its_datapath_that_are_exported(node: PolicyNode) -> None:
    config = msgspec.structs.replace(exporting_to(1, node), ovs_datapath_type="system")
    assert kernel_counts() == {"0"}
    async with node.agent(config, "FlowExporter"):
        assert kernel_counts() == {"1"}


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


async def test_several_destinations_of_objects_get_what_each_asks_for(
    node: PolicyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "GRACE_SECONDS", 0.0)
    got: dict[str, list[FlowRecord]] = {"all": [], "udp": []}
    ports: asyncio.Queue[int] = asyncio.Queue()
    collectors = {name: Collector(records.append) for name, records in got.items()}
    serving = {
        name: asyncio.create_task(one.serve("127.0.0.1", 0, "tcp", ports.put_nowait))
        for name, one in collectors.items()
    }
    at = [await ports.get() for _ in collectors]
    config = exporting_to(1, node, enable=False)
    events: list[str] = []

    def begin(work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        events.append(name)

    context = agent_context(node.facts, config, begin=begin)
    context.parts.append(policies := PolicyPart(context))
    part = FlowExportPart(context)

    async with node.agent(config, "FlowExporter", sinks=part.sinks()) as engine:
        node.policies.denied = policies.packets.denied
        running = asyncio.create_task(part.run())
        node.facts.put(FlowDestination("all", "u1", f"127.0.0.1:{at[0]}", "tcp", active=1))
        node.facts.put(FlowDestination("udp", "u2", f"127.0.0.1:{at[1]}", "tcp", ("udp",), active=1))
        node.facts.put(FlowDestination("late", "u3", "127.0.0.1:1", "grpc"))
        member = cp.GroupMember(pod=cp.PodReference(name="web", namespace="shop"))
        for row in (native("in", "web", rule("In", ANY, action="Drop")), SentAppliedMember("web", member)):
            node.facts.put(row)
        await engine.quiet()
        await until(lambda: all(one.sessions for one in collectors.values()))
        await denied_packets_come(node, got)
        assert {one.protocol_identifier for one in got["udp"]} == {17}
        assert "FlowExporterDestination late: spec.tlsConfig" in part.conditions()[CONDITION]()
        assert events == ["Event CollectorUnreachable"]
        node.facts.drop(FlowDestination, "all")
        await until(lambda: not collectors["all"].sessions)
        serving["udp"].cancel()
        await until(lambda: "FlowExporterDestination udp: " in part.conditions()[CONDITION]())
        await until(lambda: events == ["Event CollectorUnreachable"] * 2)
        running.cancel()
        await part.close()
        for one in serving.values():
            one.cancel()
        await asyncio.gather(running, *serving.values(), return_exceptions=True)


async def denied_packets_come(node: PolicyNode, got: dict[str, list[FlowRecord]]) -> None:
    for family, source in ((0, "10.10.0.8"), (1, "fd00:10::8")):
        for kind, protocol in (("SOCK_STREAM", 6), ("SOCK_DGRAM", 17)):
            answer = await asyncio.to_thread(node.hears, "near", WEB[family], kind, seconds=2)
            assert answer == "timeout"
            await until(lambda: of(got["all"], source, protocol))  # noqa: B023
        await until(lambda: of(got["udp"], source, 17))  # noqa: B023


def of(got: list[FlowRecord], source: str, protocol: int) -> list[FlowRecord]:
    return [
        one
        for one in got
        if (one.source_ip, one.protocol_identifier, one.ingress_network_policy_rule_action)
        == (source, protocol, RuleAction.DROP)
    ]


async def test_packets_of_the_userspace_datapath_are_counted_at_the_pods(node: PolicyNode) -> None:
    got: list[FlowRecord] = []
    ports: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", ports.put_nowait))
    config = msgspec.structs.replace(exporting_to(await ports.get(), node), ovs_datapath_type="netdev")
    context = agent_context(node.facts, config)
    context.parts.append(PolicyPart(context))
    part = FlowExportPart(context)
    async with node.agent(config, "FlowExporter"):
        exporting = asyncio.create_task(part.run())
        # the counters stand before the first packet, as for a Pod that is there for a poll
        await until(lambda: counts_at(node, "web"))
        with node.serving(node.pods["web"], SERVER):
            for family, source in ((0, "near"), (1, "near"), (0, "outside"), (1, "outside")):
                assert await asyncio.to_thread(node.hears, source, WEB[family], "SOCK_DGRAM") == "answered"
            # a datagram of five octets, and the same one back
            for source, octets in (
                ("10.10.0.8", 33), ("fd00:10::8", 53), (OUTSIDE[0], 33), (OUTSIDE[1], 53),
            ):  # fmt: skip
                await until(lambda: counts(got, source) == {(1, octets, 1, octets)})  # noqa: B023
        exporting.cancel()
        serving.cancel()
        await asyncio.gather(exporting, serving, return_exceptions=True)
        await part.close()
        assert not counts_at(node, "web")


def counts(got: list[FlowRecord], source: str) -> set[tuple[int, int, int, int]]:
    return {
        (one.packet_total_count, one.octet_total_count, one.reverse_packet_total_count, one.reverse_octet_total_count)
        for one in got
        if (one.source_ip, one.protocol_identifier) == (source, 17)
    }  # fmt: skip


def counts_at(node: PolicyNode, pod: str) -> bool:
    name = next(row.name for row in node.facts.all(PodInterface) if row.pod_name == pod)
    words = ["nft", "list", "table", "netdev", TABLE]
    shown = subprocess.run(words, capture_output=True, text=True, check=False)
    return f'device "{name}"' in shown.stdout
