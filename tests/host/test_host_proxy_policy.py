"""Services of AntreaProxy with packets: who is refused hears it of the Service, and UDP does not stay with a Pod that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from policy_node import CONFIG, SERVER, PolicyNode

from antrea.apis import controlplane as cp
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.proxy.agent_part.stale_connections import StaleConnections
from antrea.host.udp_binding import UdpBinding
from antrea.outside.vswitch.conntrack import Conntrack
from tests.unit.features.policy_world import ANY, native, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Namespaces

    from antrea.engine import Engine

GATES, STALE = ("AntreaProxy", "AntreaPolicy"), "CleanupStaleUDPSvcConntrack"
IPS = ("10.96.0.10", "fd00:96::a")
PODS = {"web": ("10.10.0.7", "fd00:10::7"), "near": ("10.10.0.8", "fd00:10::8")}
SERVICE = Service(
    "shop", "svc", IPS, (("TCP", 80), ("UDP", 80)), port_names=("tcp", "udp"), node_ports=(0, 0)
)
REJECTED = {"SOCK_STREAM": ("ECONNREFUSED", "ECONNREFUSED"), "SOCK_DGRAM": ("EHOSTUNREACH", "EACCES")}
UNSERVED = {"SOCK_STREAM": ("ECONNREFUSED", "ECONNREFUSED"), "SOCK_DGRAM": ("ECONNREFUSED", "ECONNREFUSED")}
OPEN = {"SOCK_STREAM": ("answered", "answered"), "SOCK_DGRAM": ("answered", "answered")}


class Node(PolicyNode):
    """With a Service, behind which are Pods."""

    def has(self, *pods: str) -> None:
        """These are its Endpoints."""
        self.facts.put(SERVICE)
        for pod, ips in PODS.items():
            for ip in ips:
                for name, protocol in (("tcp", "TCP"), ("udp", "UDP")):
                    there = pod in pods
                    row = ServiceEndpoint(
                        f"shop/{protocol}-{'6' if ':' in ip else '4'}", "shop/svc", name, protocol, ip, 8099, "n1", there, there, False
                    )  # fmt: skip
                    self.facts.put(row)

    async def heard(self, client: str) -> dict[str, tuple[str, ...]]:
        """What a client hears of the Service in both families, by kind of socket."""
        kinds = ("SOCK_STREAM", "SOCK_DGRAM")
        found = await asyncio.gather(
            *(asyncio.to_thread(self.hears, client, ip, kind, port=80) for kind in kinds for ip in IPS)
        )
        return {"SOCK_STREAM": tuple(found[:2]), "SOCK_DGRAM": tuple(found[2:])}


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


def rejecting(pod: str, direction: str) -> tuple[SentPolicy, SentAppliedMember]:
    member = cp.GroupMember(pod=cp.PodReference(name=pod, namespace="shop"))
    return native("reject", pod, rule(direction, ANY, action="Reject")), SentAppliedMember(pod, member)


async def test_a_client_of_a_service_is_rejected_by_the_address_that_it_asked(node: Node) -> None:
    node.has("web")
    async with node.agent(CONFIG, *GATES) as engine:
        with node.serving(node.pods["web"], SERVER):
            await rejected_and_not(node, engine)
        node.has()
        await engine.quiet()
        assert await node.heard("near") == UNSERVED


async def rejected_and_not(node: Node, engine: Engine) -> None:
    assert await node.heard("near") == OPEN
    for direction, pod in (("In", "web"), ("Out", "near")):
        rows = rejecting(pod, direction)
        for row in rows:
            node.facts.put(row)
        await engine.quiet()
        assert await node.heard("near") == REJECTED, direction
        for row in rows:
            node.facts.drop(type(row), row.key)
        await engine.quiet()


TALK = """
import socket, sys
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(1)
    client.connect((sys.argv[1], 80))
    print("listening", flush=True)
    for line in sys.stdin:
        while True:
            try:
                client.send(b"who")
                print(client.recv(99).decode(), flush=True)
                break
            except OSError:
                continue
"""
NAMED = """
import socket, sys
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", 8099))
print("listening", flush=True)
while True:
    _, peer = udp.recvfrom(99)
    udp.sendto(b"{}", peer)
"""


@contextlib.contextmanager
def talking(space: str, ip: str) -> Iterator[Callable[[], str]]:
    """A client that sends from one port for as long as it lives; gives who answers next."""
    words = ["ip", "netns", "exec", space, sys.executable, "-c", TALK, ip]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        reads, writes = client.stdout, client.stdin
        assert reads is not None
        assert writes is not None
        assert reads.readline() == "listening\n"

        def who() -> str:
            writes.write("\n")
            writes.flush()
            return reads.readline().strip()

        try:
            yield who
        finally:
            client.kill()


@pytest.mark.parametrize("six", [0, 1], ids=["IPv4", "IPv6"])
async def test_a_udp_client_that_goes_on_from_its_port_moves_to_the_endpoint_that_is_left(
    node: Node, six: int
) -> None:
    stale = StaleConnections(Conntrack(node.switch.directory))
    node.connect("client", 9)
    node.has("web")
    with (
        node.serving(node.pods["web"], NAMED.format("web")),
        node.serving(node.pods["near"], NAMED.format("near")),
        talking(node.pods["client"], IPS[six]) as who,
    ):
        async with node.agent(CONFIG, *GATES, STALE, sinks={UdpBinding: stale}) as engine:
            cleaning = asyncio.create_task(stale.run(engine))
            assert await asyncio.to_thread(who) == "web"
            node.has("near")
            async with asyncio.timeout(60):
                while await asyncio.to_thread(who) != "near":
                    await engine.quiet()
            cleaning.cancel()


MAX_BATCH = """
import socket, sys
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(5)
    client.connect((sys.argv[1], 80))
    for _ in range(3):
        client.send(b"who")
    print(*(client.recv(99).decode() for _ in range(3)))
"""


@pytest.mark.parametrize("six", [0, 1], ids=["IPv4", "IPv6"])
async def test_datagrams_that_follow_before_the_first_answer_get_theirs(node: Node, six: int) -> None:
    """As a resolver that asks for A and AAAA from one port does."""
    node.has("web")
    words = ["ip", "netns", "exec", node.pods["near"], sys.executable, "-c", MAX_BATCH, IPS[six]]
    async with node.agent(CONFIG, *GATES):
        with node.serving(node.pods["web"], NAMED.format("web")):
            for _ in range(5):
                # the next datagrams meet no cached flow, so that each of them goes the long way
                node.switch.appctl("revalidator/purge")
                done = await asyncio.to_thread(
                    subprocess.run, words, capture_output=True, text=True, check=False
                )
                assert (done.stdout.split(), done.stderr) == (["web"] * 3, "")
