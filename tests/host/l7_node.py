"""A Node whose Pods' requests the real engine judges, and clients that ask."""

from __future__ import annotations

import asyncio
import contextlib
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
from netdev_switch import TIMEOUT
from policy_node import CONFIG, PolicyNode

from antrea.apis import controlplane as cp
from antrea.facts.ovs import OvsPort
from antrea.features.l7_network_policy.agent import PORT_TYPE
from antrea.features.l7_network_policy.agent_part.engine import L7EngineControl
from antrea.features.l7_network_policy.agent_part.files import EngineFiles
from antrea.features.l7_network_policy.agent_part.part import forget_connections, has_connections
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.network_policy.agent.rule import L7, PolicyRule
from antrea.features.network_policy.l7.configuration import TAPS
from antrea.features.network_policy.l7.tenant import Tenant, outdated, why_not_inspected
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
        done = subprocess.run(
            within, input=text, capture_output=True, text=True, check=True, timeout=120 * TIMEOUT
        )
        count, end = json.loads(done.stdout)["x"]
        return count, end

    def becomes(self, wanted: tuple[int, str], family: int, exchanges: Sequence[Sequence[str]]) -> None:
        """The switch may judge by what stood before while it looks its cache through."""
        deadline = time.monotonic() + 30 * TIMEOUT
        while (found := self.asked(family, exchanges, seconds=3 * TIMEOUT)) != wanted:
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


def stated(
    direction: str, protocols: tuple[cp.L7Protocol, ...], *others: cp.NetworkPolicyRule, name: str = "p"
) -> SentPolicy:
    pod = "web" if direction == "In" else "near"
    first = msgspec.structs.replace(
        rule(direction, cp.NetworkPolicyPeer(ip_blocks=EVERYBODY), action="Allow"),
        l7_protocols=protocols,
        name="l7",
    )
    numbered = [msgspec.structs.replace(one, priority=number) for number, one in enumerate((first, *others))]
    return native(f"{name}-{direction}", pod, *numbered)


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
