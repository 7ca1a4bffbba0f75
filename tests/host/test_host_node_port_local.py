"""NodePortLocal with packets: who asks for a port of the Node is answered by the Pod that has it, in both families."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_context import agent_context
from policy_node import CONFIG, NODES, OUTSIDE, WEB, PolicyNode
from proxy_node import SERVER

from antrea.apis.annotation import PodAnnotation
from antrea.config.agent_sections import FlowExporter, NodePortLocal
from antrea.facts.member import AgentNode
from antrea.features.flow_export.agent_part.part import FlowExportPart
from antrea.features.network_policy.agent_part.part import PolicyPart
from antrea.features.node_port_local.agent_part.allocator import Place, PortAllocator, remembered
from antrea.features.node_port_local.agent_part.part import hold_port
from antrea.features.node_port_local.host import PORTS
from antrea.features.node_port_local.request import RecordPortMessage
from antrea.features.node_port_local.row import HeldPort, PortLocalPod, PortLocalService
from antrea.outside.ipfix.collector import Collector
from antrea.outside.nftables.table_reader import NftElements
from image_build.rootfs import static_program
from lab import e2e_images

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from conftest import Namespaces

    from antrea.apis.flow import FlowRecord
    from antrea.engine import Act, Sink

ENABLED = msgspec.structs.replace(CONFIG, node_port_local=NodePortLocal(enable=True))
NEAR = ("10.10.0.8", "fd00:10::8")
GATEWAYS = ("10.10.0.1", "fd00:10::1")
SERVICE = PortLocalService(
    "shop", "web", (("app", "web"),), (("SCTP", 8080), ("TCP", 8080), ("UDP", 8080)), ("IPv4", "IPv6")
)
POD = PortLocalPod("shop", "web", "u", (("app", "web"),), WEB, ())
CLIENT = """
import errno, socket, sys
address, kind, port = sys.argv[1], getattr(socket, sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as client:
    client.settimeout(30)
    try:
        client.connect((address, port))
        if kind == socket.SOCK_DGRAM:
            client.send(b"hello")
        print(client.recv(99).decode())
    except OSError as no:
        print(errno.errorcode.get(no.errno, "timeout"))
"""
TAKEN = """
import socket
kept = [socket.create_server(("0.0.0.0", port)) for port in (61000, 61001)]
print("listening", flush=True)
kept[0].accept()
"""
"""Another program of the Node has two of its ports."""


class Recorder:
    """Sink of annotations, and who does acts: `said` has the messages."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def apply(self, put: Sequence[PodAnnotation], drop: Sequence[PodAnnotation]) -> None:
        """The API server is not what is looked at here."""

    async def resync(self, entries: Sequence[PodAnnotation]) -> None:
        """As `apply`."""

    async def sweep(self, category: int) -> None:
        """Nothing to sweep."""

    async def do(self, act: RecordPortMessage) -> None:
        self.said.append(act.message)


class Node(PolicyNode):
    """Whose agent gives ports to Pods."""

    def start(self) -> None:
        super().start()
        self.pods["node"] = self.netns.home
        self.recorder = Recorder()
        self.facts.put(AgentNode("n1", NODES, NODES, pod_cidrs=("10.10.0.0/24", "fd00:10::/64")))

    @contextlib.asynccontextmanager
    async def giving(self, ports: range, answers: int) -> AsyncIterator[PortAllocator]:
        """The agent with ports to give, once that many requests have an answer; it remembers what nftables have."""
        allocator = PortAllocator(self.facts, ports, hold)
        elements = NftElements()
        found = [one for name in PORTS for one in await elements.of_map(name)]
        for row in (SERVICE, POD):
            self.facts.put(row)
            self.facts.synced(type(row))
        sinks: dict[type, Sink] = {PodAnnotation: self.recorder}
        acts: dict[type[Act], Any] = {RecordPortMessage: self.recorder.do}
        async with self.agent(ENABLED, "NodePortLocal", sinks=sinks, more=acts) as engine:
            allocator.remember(remembered((one.value, one.data) for one in found))
            work = asyncio.create_task(allocator.run(engine))
            await self.until(lambda: len(self.facts.all(HeldPort)) == answers)
            await engine.quiet()
            yield allocator
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            allocator.close()
            assert not engine.errors.counts

    def port(self, protocol: str, family: str) -> int:
        held = self.facts.get(HeldPort, f"shop/web:8080/{protocol}/{family}")
        assert held is not None
        return held.node_port

    async def asks(self, who: str) -> tuple[str, ...]:
        """What it is answered at the Node over TCP in IPv4 and IPv6, and over UDP."""
        asked = [
            (ip, kind, self.port(protocol, family))
            for protocol, kind in (("tcp", "SOCK_STREAM"), ("udp", "SOCK_DGRAM"))
            for ip, family in zip(NODES, ("IPv4", "IPv6"), strict=True)
        ]
        return tuple(await asyncio.gather(*(self.ask(who, *one) for one in asked)))

    async def ask(self, who: str, ip: str, kind: str, port: int) -> str:
        words = ["ip", "netns", "exec", self.pods[who], sys.executable, "-c", CLIENT]
        asked = [*words, ip, kind, str(port)]
        run = await asyncio.to_thread(subprocess.run, asked, stdout=-1, text=True, check=True, timeout=60)
        return str(run.stdout.strip())


def hold(place: Place) -> socket.socket | None:
    return hold_port(place.port, place.protocol, ipv6=place.ipv6)


@contextlib.contextmanager
def serving_sctp(program: Path, space: str) -> Iterator[None]:
    """A server at port 8080 of that namespace."""
    words = ["ip", "netns", "exec", space, str(program), "porter"]
    with subprocess.Popen(words, env={**os.environ, "SERVE_SCTP_PORT_8080": "foo"}) as server:
        try:
            yield
        finally:
            server.kill()


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


async def test_all_who_ask_for_a_port_of_the_node_are_answered_by_its_pod(node: Node) -> None:
    """It sees who asks: a host outside, a Pod of the Node, the Node; itself it sees as the Node."""
    async with node.giving(range(61000, 61101), 6):
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("outside") == OUTSIDE * 2
            assert await node.asks("near") == NEAR * 2
            assert await node.asks("node") == GATEWAYS * 2
            assert await node.asks("web") == GATEWAYS * 2


async def test_records_have_the_port_of_the_node_that_was_asked_and_its_service(node: Node) -> None:
    """And none where the Pod itself was asked."""
    got: list[FlowRecord] = []
    collector: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(Collector(got.append).serve("127.0.0.1", 0, "tcp", collector.put_nowait))
    to = f"127.0.0.1:{await collector.get()}:tcp"
    exporter = FlowExporter(
        enable=True, flow_collector_addr=to, flow_poll_interval="1s", active_flow_export_timeout="1s"
    )
    config = msgspec.structs.replace(ENABLED, flow_exporter=exporter, ovs_run_dir=str(node.switch.directory))
    context = agent_context(node.facts, config)
    context.parts.append(PolicyPart(context))
    exporting = asyncio.create_task(FlowExportPart(context).run())

    def asked(ip: str) -> set[tuple[str, str, int]]:
        """Names, addresses and ports of the Services in records of that client."""
        ours = [one for one in got if (one.source_ip, one.destination_transport_port) == (ip, 8080)]
        return {
            (one.destination_service_port_name, one.destination_service_ip, one.destination_service_port)
            for one in ours
        }

    async def seen(client: str, *services: tuple[str, str, int]) -> None:
        async with asyncio.timeout(60):
            while not asked(client) >= set(services):  # noqa: ASYNC110 (records come from the network)
                await asyncio.sleep(0.05)

    async with node.giving(range(61000, 61101), 6):
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("outside") == OUTSIDE * 2
            for client, ip, family in zip(OUTSIDE, NODES, ("IPv4", "IPv6"), strict=True):
                ports = {node.port(protocol, family) for protocol in ("tcp", "udp")}
                await seen(client, *(("shop/web", ip, port) for port in ports))
                assert len(asked(client)) == len(ports)
            assert {one.destination_pod_name for one in got} == {"web"}
            for ip, client in zip(WEB, OUTSIDE, strict=True):
                got.clear()
                assert await node.ask("outside", ip, "SOCK_STREAM", 8080) == client
                await seen(client, ("", "", 0))
    for task in (exporting, serving):
        task.cancel()
    await asyncio.gather(exporting, serving, return_exceptions=True)


async def test_associations_are_led_on_as_connections_are(node: Node) -> None:
    program = static_program(e2e_images.SCTP_SOURCE)
    async with node.giving(range(61000, 61101), 6):
        with serving_sctp(program, node.pods["web"]):
            for ip, family in ((NODES[0], "IPv4"), (f"[{NODES[1]}]", "IPv6")):
                at = f"{ip}:{node.port('sctp', family)}"
                asked = f"{program} connect {at} --timeout=5s --protocol=sctp"
                deadline = time.monotonic() + 60
                while node.netns.run(asked, node.outside).returncode:
                    assert time.monotonic() < deadline, at


async def test_ports_are_kept_over_a_restart_and_those_of_others_are_left_alone(node: Node) -> None:
    with node.serving(node.netns.home, TAKEN):
        async with node.giving(range(61000, 61101), 6):
            before = {row.key: row.node_port for row in node.facts.all(HeldPort)}
            assert before["shop/web:8080/tcp/IPv4"] not in (61000, 61001)
            with node.serving(node.pods["web"], SERVER):
                assert await node.asks("outside") == OUTSIDE * 2
        for row in node.facts.all(HeldPort):
            node.facts.drop(HeldPort, row.key)
        # another start, from the other end of the range: what nftables have is taken over
        async with node.giving(range(61000, 61101)[::-1], 6):
            assert {row.key: row.node_port for row in node.facts.all(HeldPort)} == before
            with node.serving(node.pods["web"], SERVER):
                assert await node.asks("outside") == OUTSIDE * 2
        assert node.recorder.said == []


async def test_a_port_goes_with_its_service_and_whoever_asks_then_is_not_led_on(node: Node) -> None:
    async with node.giving(range(61000, 61101), 6) as allocator:
        with node.serving(node.pods["web"], SERVER):
            port = node.port("tcp", "IPv4")
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("0.0.0.0", port))
            assert await node.ask("outside", NODES[0], "SOCK_STREAM", port) == OUTSIDE[0]
            node.facts.drop(PortLocalService, SERVICE.key)
            await node.until(lambda: not node.facts.all(HeldPort))
            assert not allocator.counts
            deadline = time.monotonic() + 60
            while (said := await node.ask("outside", NODES[0], "SOCK_STREAM", port)) != "ECONNREFUSED":
                assert time.monotonic() < deadline, said
            assert "61" not in node.netns.sh("nft list map inet antrea node-port-local")
            socket.create_server(("0.0.0.0", port)).close()


async def test_a_thousand_ports_are_the_same_after_a_restart(node: Node) -> None:
    many = [
        PortLocalPod("shop", f"p{n}", f"u{n}", (("app", "web"),), (f"10.10.0.{n}", f"fd00:10::{n:x}"), ())
        for n in range(20, 186)
    ]
    for row in many:
        node.facts.put(row)
    answers = 6 * (len(many) + 1)
    async with node.giving(range(61000, 62001), answers):
        before = {row.key: row.node_port for row in node.facts.all(HeldPort)}
    for held in node.facts.all(HeldPort):
        node.facts.drop(HeldPort, held.key)
    began = time.monotonic()
    async with node.giving(range(61000, 62001)[::-1], answers) as allocator:
        print(f"{answers} ports, {time.monotonic() - began:.2f} s after the start of the second engine")
        assert {row.key: row.node_port for row in node.facts.all(HeldPort)} == before
        assert allocator.counts.total() == answers
