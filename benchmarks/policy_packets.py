"""How many rejected packets a second does the agent answer and log, and what becomes of those above its limit?

A real Open vSwitch with its userspace datapath has the agent's flows for two Pods in network namespaces, of which one rejects and
logs UDP to port 81 and takes it on port 80. The other sends on both ports; what is counted are the answers that it hears, and
packets that port 80 lost, compared with a rule that drops, of which the agent hears nothing. Needs root.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from figure import Against, show
from policy_switch import CONFIG, FEATURES, PIPELINE

from antrea.agent.switch.packet_in import SwitchPackets
from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.engine import Engine, Facts
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.network_policy.agent_part.part import PolicyPackets
from antrea.openflow.fields import PacketIn
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.log.audit_log import AuditLog
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from benchmarks.cni_add import GATEWAY_MAC, namespaces, open_vswitch, processes, sh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Sink
    from antrea.facts.fact import Fact

SECONDS, ALLOWED = 4, 500
"""Of one run, and packets a second that no policy is against."""
OFFERED = (500, 2000, 5000, 20000)
"""Rejected packets a second; the agent's limit is 5,000."""
NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
IPS = {"p1": "10.10.0.7", "p2": "10.10.0.8"}
MACS = {"p1": "0a:00:00:00:00:07", "p2": "0a:00:00:00:00:08"}
GENERATOR = """
import json, socket, sys, time
rejected, allowed, seconds, server = json.loads(sys.argv[1])
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(100)]
def answers():
    names, values = (line.split() for line in open("/proc/net/snmp") if line.startswith("Icmp:"))
    return int(values[names.index("InDestUnreachs")])
before, sent, begin = answers(), [0, 0], time.monotonic()
while (now := time.monotonic() - begin) < seconds:
    for which, (port, rate) in enumerate(((81, rejected), (80, allowed))):
        while sent[which] < now * rate:
            sockets[sent[which] % 100].sendto(b"12345678", (server, port))
            sent[which] += 1
    time.sleep(0.0005)
time.sleep(1.5)
print(json.dumps([*sent, answers() - before]))
"""
SERVER = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
server.bind(("", 80))
server.settimeout(1)
print("ready", flush=True)
count, silent = 0, 0
while silent < 3:
    try:
        server.recv(99)
        count, silent = count + 1, 0
    except TimeoutError:
        silent += bool(count)
print(count)
"""


class Outcome(msgspec.Struct):
    """Of one run, all in packets a second but the last."""

    sent: float
    answered: float
    logged: float
    metered: float
    overflowed: float
    """That the switch dropped while the agent was busy."""
    dropped: float
    lost: int
    """Packets that no policy is against, of all that were sent."""
    cpu: float
    """Microseconds of the agent for each answer and its line."""


class Agent:
    """The agent's units, its sinks and its way of packets, on one switch."""

    def __init__(self, directory: Path, ofports: dict[str, int]) -> None:
        self.facts = Facts()
        management = directory / "br-int.mgmt"
        self.ofctl = Ofctl(management)
        self.log = directory / "np.log"
        self.packets = SwitchPackets(management, CONFIG)
        self.audit = AuditLog(self.log, CONFIG.audit_logging)
        policies = PolicyPackets(self.facts, self.packets.send, self.audit)
        self.packets.deliver({PacketIn.NETWORK_POLICY: policies.handle})
        flows = FlowSink(self.ofctl, PIPELINE, 1)
        sinks: dict[type, Sink] = {Flow: flows, Group: flows, Meter: MeterSink(self.ofctl)}
        for pool, low, high in (bounds for feature in FEATURES for bounds in feature.ranks):
            self.facts.ids.between(pool, low, high)
        for row in rows(ofports):
            self.facts.put(row)
        self.engine = Engine(self.facts, [unit for feature in FEATURES for unit in feature.units], sinks)

    async def metered(self) -> int:
        """Packets that the switch has dropped before us."""
        found = [line async for line in self.ofctl.lines("meter-stats")]
        return sum(int(one[1]) for line in found if (one := re.match(r"0: packet_count:(\d+)", line)))

    def dropped(self) -> int:
        """Packets that it did not look at, or whose answer did not go out."""
        return sum(
            int(line.rpartition(" ")[2])
            for line in (self.packets.text() + self.audit.text()).splitlines()
            if line[0] != "#"
        )

    def logged(self) -> int:
        """Packets in lines of the log."""
        if not self.log.exists():
            return 0
        counts = re.findall(r"<nil>(?: \[(\d+) packets in [\d.]+s\])?$", self.log.read_text(), re.MULTILINE)
        return sum(int(count or 1) for count in counts)


def rows(ofports: dict[str, int]) -> Iterator[Fact]:
    """Two Pods, of which one has a policy."""
    gateway = OvsPort("antrea-gw0", "gateway", ofports["antrea-gw0"], GATEWAY_MAC)
    yield from (CONFIG, NODE, RealizedPipeline(PIPELINE), gateway)
    for name, ip in IPS.items():
        yield PodInterface(name, name, "shop", name, MACS[name], (ip,), ofports[name], name)
    yield SentAppliedMember("g", cp.GroupMember(pod=cp.PodReference(name="p2", namespace="shop")))


def policy(action: str, *, logging: bool) -> SentPolicy:
    """On UDP to port 81."""
    everybody = cp.NetworkPolicyPeer(
        ip_blocks=(cp.IPBlock(cidr=cp.IPNet(ip=b"\0" * 10 + b"\xff\xff\0\0\0\0")),)
    )
    rule = cp.NetworkPolicyRule(
        direction="In",
        from_=everybody,
        to=cp.NetworkPolicyPeer(),
        services=(cp.Service(protocol="UDP", port=81),),
        action=action,
        enable_logging=logging,
    )
    return SentPolicy(
        cp.NetworkPolicy(
            metadata=ObjectMetadata(name="p", uid="p"),
            rules=(rule,),
            applied_to_groups=("g",),
            tier_priority=250,
            priority=5,
            source_ref=cp.NetworkPolicyReference(type="AntreaClusterNetworkPolicy", name="p", uid="p"),
        )
    )


async def run(agent: Agent, spaces: list[str], offered: int) -> Outcome:
    """Send for some seconds, and count."""
    server = await inside(spaces[1], SERVER)
    assert server.stdout is not None
    await server.stdout.readline()
    before = (agent.logged(), await agent.metered(), await agent.packets.overflow(), agent.dropped(), cpu())
    words = json.dumps([offered, ALLOWED, SECONDS, IPS["p2"]])
    said, _ = await (await inside(spaces[0], GENERATOR, words)).communicate()
    sent, allowed, answers = json.loads(said)
    received, _ = await server.communicate()
    after = (agent.logged(), await agent.metered(), await agent.packets.overflow(), agent.dropped(), cpu())
    logged, metered, overflowed, dropped, spent = (
        now - then for now, then in zip(after, before, strict=True)
    )
    each = [number / SECONDS for number in (sent, answers, logged, metered, overflowed, dropped)]
    return Outcome(
        each[0],
        each[1],
        each[2],
        each[3],
        each[4],
        each[5],
        allowed - int(received),
        1e6 * spent / max(1, answers),
    )


async def inside(space: str, text: str, *words: str) -> asyncio.subprocess.Process:
    """A Python program in a network namespace."""
    command = ("nsenter", f"--net={space}", sys.executable, "-c", text, *words)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


def cpu() -> float:
    """Seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def connected(directory: Path, spaces: list[str]) -> dict[str, int]:
    """The Pods, who know each other's MAC addresses; numbers of all ports."""
    vsctl = ("ovs-vsctl", f"--db=unix:{directory}/db.sock", "--timeout=10")
    for name, space in zip(IPS, spaces, strict=True):
        within = ("nsenter", f"--net={space}")
        sh("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", Path(space).name)
        sh("ip", "link", "set", name, "up")
        sh(*within, "ip", "link", "set", "eth0", "up", "address", MACS[name])
        sh(*within, "ethtool", "-K", "eth0", "tx", "off")
        sh(*within, "ip", "address", "add", f"{IPS[name]}/24", "dev", "eth0")
        for other in IPS.keys() - {name}:
            sh(*within, "ip", "neigh", "add", IPS[other], "lladdr", MACS[other], "dev", "eth0")
        sh(*vsctl, "add-port", "br-int", name)
    asked = (*vsctl, "--bare", "--columns=name,ofport", "find", "interface")
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(said[::2], map(int, said[1::2]), strict=True))


async def measure(directory: Path, spaces: list[str]) -> None:
    """All rates, one after the other."""
    agent = Agent(directory, connected(directory, spaces))
    async with asyncio.TaskGroup() as tasks:
        work = [
            tasks.create_task(one) for one in (agent.engine.run(), agent.packets.run(), agent.audit.run())
        ]
        await agent.packets.connected.wait()
        await agent.engine.quiet()
        for offered in OFFERED:
            agent.facts.put(policy("Drop", logging=False))
            await agent.engine.quiet()
            dropping = await run(agent, spaces, offered)
            agent.facts.put(policy("Reject", logging=True))
            await agent.engine.quiet()
            found = await run(agent, spaces, offered)
            show(f"reject_{offered}_sent", "packets/s", [found.sent])
            show(f"reject_{offered}_answered", "answers/s", [found.answered])
            show(f"reject_{offered}_logged", "packets/s in the log", [found.logged])
            show(f"reject_{offered}_metered", "packets/s dropped by the switch's meter", [found.metered])
            show(
                f"reject_{offered}_overflowed",
                "packets/s dropped while the agent was busy",
                [found.overflowed],
            )
            show(f"reject_{offered}_dropped", "packets/s dropped and counted by the agent", [found.dropped])
            show(f"reject_{offered}_cpu", "µs of the agent per answer", [found.cpu])
            against = Against("the same with Drop", (dropping.lost,))
            show(f"reject_{offered}_forwarding_lost", "other packets", [found.lost], against=against)
        for task in work:
            task.cancel()


def main() -> None:
    """In namespaces of its own."""
    with namespaces(2) as spaces, processes() as start, tempfile.TemporaryDirectory(prefix="ovs-") as name:
        open_vswitch(Path(name), start)
        asyncio.run(measure(Path(name), spaces))


if __name__ == "__main__":
    main()
