"""L7NetworkPolicy on a Node: rules with application protocols, the agent's flows and effects, the real engine, real requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from certificates import SERVER as SERVER_AUTH
from certificates import made
from l7_client import CLIENT, SERVER
from l7_container import EngineContainer
from policy_node import CONFIG, NODE, NODES, PolicyNode

from antrea.agent.l7_network_policy import engine as engine_control
from antrea.agent.l7_network_policy.connections import forget_connections, has_connections
from antrea.agent.l7_network_policy.engine import L7EngineControl
from antrea.agent.l7_network_policy.files import EngineFiles
from antrea.apis import controlplane as cp
from antrea.facts.member import AgentNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.l7_network_policy.agent import PORT_TYPE
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.network_policy.agent.rule import L7, PolicyRule
from antrea.features.network_policy.l7.configuration import TAPS
from antrea.features.network_policy.l7.tenant import LoadedTenant, Tenant, outdated, why_not_inspected
from antrea.host.ovs_port import Port
from antrea.outside.vswitch.conntrack import Conntrack
from tests.unit.features.policy_world import native, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from conftest import Namespaces

WEB = ("10.10.0.7", "fd00:10::7")
OK = b"200 OK"
PUBLIC = (cp.L7Protocol(http=cp.HTTPProtocol(method="GET", path="/public*")),)
SECRET = (cp.L7Protocol(http=cp.HTTPProtocol(method="GET", path="/secret*")),)
GATES = ("AntreaPolicy", "L7NetworkPolicy", "AntreaProxy", "Egress")


GATEWAYS = ("10.10.0.1", "fd00:10::1")
SERVICE = ("10.96.0.1", "fd00:96::1")
SERVICE_ROWS = (
    AgentNode("n1", NODES, NODES, pod_cidrs=NODE.pod_cidrs),
    Service("shop", "web", SERVICE, (("TCP", 80),), port_names=("http",), node_ports=(0,)),
    *(ServiceEndpoint(f"shop/web-{version}", "shop/web", "http", "TCP", ip, 80, "n1", True, True, False)
      for version, ip in zip((4, 6), WEB, strict=True)),
)  # fmt: skip
NO_REQUEST = {
    "DNS over TCP": [[(b"\x00\x1d" + b"\xab" * 29).hex()]],
    "TLS": [[(b"\x16\x03\x01\x00\x05" + b"\x01" * 5).hex()]],
}


def get(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode().hex()


PUBLIC_GET, SECRET_GET = [[get("/public/x")]], [[get("/secret")]]
BOTH = [[get("/public/x")], [get("/secret")]]


class NoPorts:
    """Sink of ports, which the test makes by itself."""

    async def apply(self, put: object, drop: object) -> None: ...
    async def resync(self, entries: object) -> None: ...
    async def sweep(self, category: int) -> None: ...


class L7Node(PolicyNode):
    """With the taps of the engine, and with Pods whose requests the engine judges."""

    def start(self) -> None:
        super().start()
        for tap in TAPS:
            self.switch.vsctl("add-port", "br-int", tap, "--", "set", "interface", tap, "type=internal")
            self.netns.sh(f"sysctl -qw net.ipv6.conf.{tap}.disable_ipv6=1; ip link set {tap} up")
            self.facts.put(OvsPort(tap, PORT_TYPE, self.ofport(tap), self.mac_of(tap)))

    def asked(
        self,
        family: int,
        exchanges: Sequence[Sequence[str]],
        seconds: float = 30,
        to: tuple[str, str] = WEB,
    ) -> tuple[int, str]:
        """How many answers `near` gets of `web`, and how the connection ended."""
        words = [sys.executable, "-c", CLIENT, to[family], "80", OK.hex(), str(seconds)]
        within = ["ip", "netns", "exec", self.pods["near"], *words]
        self.switch.revalidate()
        text = json.dumps({"x": exchanges})
        done = subprocess.run(within, input=text, capture_output=True, text=True, check=True, timeout=120)
        count, end = json.loads(done.stdout)["x"]
        return count, end

    def becomes(self, wanted: tuple[int, str], family: int, exchanges: Sequence[Sequence[str]]) -> None:
        """The switch may judge by what stood before while it looks its cache through."""
        deadline = time.monotonic() + 30
        while (found := self.asked(family, exchanges, seconds=3)) != wanted:
            assert time.monotonic() < deadline, (found, wanted)


@pytest.fixture
def node(netns: Namespaces) -> Iterator[L7Node]:
    with L7Node(netns).standing() as found:
        yield found


@pytest.fixture
def files() -> Iterator[EngineFiles]:
    """Below /run, which the root of the engine has empty."""
    folder = Path(tempfile.mkdtemp(prefix="l7-", dir="/run"))
    yield EngineFiles(folder)
    shutil.rmtree(folder)


def stated(direction: str, protocols: tuple[cp.L7Protocol, ...], *others: cp.NetworkPolicyRule) -> SentPolicy:
    pod = "web" if direction == "In" else "near"
    first = msgspec.structs.replace(
        rule(direction, cp.NetworkPolicyPeer(ip_blocks=EVERYBODY), action="Allow"),
        l7_protocols=protocols,
        name="l7",
    )
    numbered = [msgspec.structs.replace(one, priority=number) for number, one in enumerate((first, *others))]
    return native(f"p-{direction}", pod, *numbered)


EVERYBODY = tuple(
    cp.IPBlock(cidr=cp.IPNet(ip=ip, prefix_length=0))
    for ip in (bytes(10) + b"\xff\xff" + bytes(4), bytes(16))
)


def control_of(node: L7Node, files: EngineFiles) -> L7EngineControl:
    conntrack = Conntrack(node.switch.directory)
    return L7EngineControl(
        node.facts,
        files,
        lambda vlan: forget_connections(conntrack, vlan),
        lambda vlan: has_connections(conntrack, vlan),
    )


@contextlib.asynccontextmanager
async def running(node: L7Node, files: EngineFiles, tmp_path: Path) -> AsyncIterator[L7EngineControl]:
    for pod in ("near", "web"):
        member = cp.GroupMember(pod=cp.PodReference(name=pod, namespace="shop"))
        node.facts.put(SentAppliedMember(pod, member))
    control = control_of(node, files)
    certificate = made("a.example", usage=SERVER_AUTH)
    log = tmp_path / "requests"
    log.with_suffix(".pem").write_text(certificate.pem + certificate.key_pem)
    async with node.agent(CONFIG, *GATES, sinks={Tenant: control, Port: NoPorts()}):
        task = asyncio.create_task(control.run(node.facts))
        try:
            with node.serving(node.pods["web"], SERVER.replace("LOG", str(log))):
                yield control
        finally:
            task.cancel()


def why(node: L7Node) -> str:
    (found,) = why_all(node)
    return found


def why_all(node: L7Node) -> set[str]:
    """Why requests of rules are not judged, or as before a change."""
    rules = node.facts.by(PolicyRule, "l7", L7)
    return {why_not_inspected(node.facts, one) or outdated(node.facts, one) for one in rules}


@pytest.mark.parametrize("direction", ["In", pytest.param("Out", marks=pytest.mark.wide)])
async def test_requests_are_judged_and_nothing_passes_without_an_engine(
    node: L7Node, files: EngineFiles, tmp_path: Path, direction: str
) -> None:
    async with running(node, files, tmp_path):
        node.facts.put(stated(direction, PUBLIC))
        await node.until(lambda: node.facts.by(PolicyRule, "l7", L7))
        for family in (0, 1):
            await asyncio.to_thread(node.becomes, (0, "silent"), family, PUBLIC_GET)
        assert "not running" in why(node)
        with EngineContainer(files.wanted.parent) as container:
            await node.until(lambda: node.facts.all(LoadedTenant))
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)
                assert await asyncio.to_thread(node.asked, family, SECRET_GET) == (0, "reset")
                assert await asyncio.to_thread(node.asked, family, BOTH) == (1, "reset")
            assert why(node) == ""
            node.facts.put(stated(direction, SECRET))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, SECRET_GET)
            assert await asyncio.to_thread(node.asked, 0, PUBLIC_GET) == (0, "reset")
            await asyncio.to_thread(container.crash)
            await asyncio.to_thread(node.becomes, (1, "open"), 0, SECRET_GET)
            node.facts.drop(SentPolicy, f"p-{direction}")
            for exchanges in (PUBLIC_GET, SECRET_GET):
                await asyncio.to_thread(node.becomes, (1, "open"), 0, exchanges)


@pytest.mark.parametrize("direction", ["In", "Out"])
async def test_what_is_no_request_to_a_service_is_reset(
    node: L7Node, files: EngineFiles, tmp_path: Path, direction: str
) -> None:
    for row in SERVICE_ROWS:
        node.facts.put(row)
    gateway = node.mac_of("antrea-gw0")
    for address in GATEWAYS:
        node.netns.sh(f"ip neigh replace {address} lladdr {gateway} dev eth0", node.pods["near"])
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent):
            node.facts.put(stated(direction, PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)
                asked = functools.partial(node.asked, family, to=SERVICE)
                assert await asyncio.to_thread(asked, PUBLIC_GET) == (1, "open")
                assert await asyncio.to_thread(asked, BOTH) == (1, "reset")
                for exchanges in NO_REQUEST.values():
                    assert await asyncio.to_thread(asked, exchanges) == (0, "reset")
                slowly = [[one.encode().hex() for one in "GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n"]]
                assert await asyncio.to_thread(asked, slowly) == (1, "open")


MEGABYTE = 1_000_000
BODY = f"GET /public/x HTTP/1.1\r\nHost: a\r\nContent-Length: {MEGABYTE}\r\n\r\n" + "b" * MEGABYTE
HEADS = (
    f"GET /public/{'p' * MEGABYTE} HTTP/1.1\r\nHost: a\r\n\r\n",
    f"GET /public/x HTTP/1.1\r\nHost: a\r\nX: {'h' * MEGABYTE}\r\n\r\n",
)


async def test_requests_of_a_megabyte_and_an_engine_that_hangs(
    node: L7Node, files: EngineFiles, tmp_path: Path
) -> None:
    """What is allowed passes however long its body is, a head that is longer than the engine takes does not."""
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent) as container:
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            for family in (0, 1):
                assert await asyncio.to_thread(node.asked, family, [[BODY.encode().hex()]]) == (1, "open")
                for head in HEADS:
                    count, _ = await asyncio.to_thread(node.asked, family, [[head.encode().hex()]], 2)
                    assert count == 0
                assert await asyncio.to_thread(node.asked, family, PUBLIC_GET) == (1, "open")
            with container.stopped():
                assert await asyncio.to_thread(node.asked, 0, PUBLIC_GET, 2) == (0, "silent")
                await node.until(lambda: "does not answer" in why(node))
                assert await asyncio.to_thread(node.asked, 1, PUBLIC_GET, 2) == (0, "silent")
            await node.until(lambda: why(node) == "")
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)


KEEPING = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 80), timeout=20) as peer:
    try:
        while True:
            peer.sendall(b"GET /public/x HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
            print("answered" if b"200 OK" in peer.recv(4096) else "closed", flush=True)
            time.sleep(0.1)
    except ConnectionError:
        print("reset", flush=True)
"""


async def test_a_connection_of_before_a_change_is_judged_by_the_change_a_little_later(
    node: L7Node, files: EngineFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New ones are at once."""
    monkeypatch.setattr(engine_control, "OVERLAP", overlap := 4.0)
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent):
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            words = ["ip", "netns", "exec", node.pods["near"], sys.executable, "-c", KEEPING, WEB[0]]
            kept = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            assert kept.stdout is not None
            assert await kept.stdout.readline() == b"answered\n"
            changed = time.monotonic()
            node.facts.put(stated("In", SECRET))
            await asyncio.to_thread(node.becomes, (0, "reset"), 0, PUBLIC_GET)
            async with asyncio.timeout(60):
                *found, last = (await kept.stdout.read()).splitlines()
            assert time.monotonic() - changed >= overlap
            assert ({*found}, last) == ({b"answered"}, b"reset")
            await kept.wait()
            await node.until(lambda: len(node.facts.all(LoadedTenant)) == 1)
            assert await asyncio.to_thread(node.asked, 0, SECRET_GET) == (1, "open")


ALL = (cp.L7Protocol(http=cp.HTTPProtocol(method="GET", path="/*")),)


async def test_a_connection_that_two_rules_allow_is_judged_by_both(
    node: L7Node, files: EngineFiles, tmp_path: Path
) -> None:
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent):
            node.facts.put(stated("In", PUBLIC))
            node.facts.put(stated("Out", ALL))
            await node.until(lambda: len(node.facts.all(LoadedTenant)) == len(("In", "Out")))
            for narrow, wide in (("In", "Out"), ("Out", "In")):
                node.facts.put(stated(narrow, PUBLIC))
                node.facts.put(stated(wide, ALL))
                await asyncio.to_thread(node.becomes, (0, "reset"), 0, SECRET_GET)
                await node.until(lambda: why_all(node) == {""})
                for family in (0, 1):
                    assert await asyncio.to_thread(node.asked, family, PUBLIC_GET) == (1, "open")
                    assert await asyncio.to_thread(node.asked, family, BOTH) == (1, "reset")
            node.facts.put(stated("In", SECRET))
            await asyncio.to_thread(node.becomes, (0, "reset"), 0, PUBLIC_GET)
            assert await asyncio.to_thread(node.asked, 0, SECRET_GET) == (0, "reset")
            node.facts.drop(SentPolicy, "p-In")
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            assert await asyncio.to_thread(node.asked, 0, SECRET_GET) == (0, "reset")
