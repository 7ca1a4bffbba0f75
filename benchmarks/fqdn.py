"""What do rules on domain names cost a Pod's first connection to a name, and the agent that keeps 10,000 names?

A real Open vSwitch with its userspace datapath has the agent's flows for a Pod in a network namespace, to which rules allow DNS and
names below a hundred wildcards, and reject all else. The Pod resolves a name and connects to its address at once, 10,000 names at
100 a second, each with an address of its own; a connection that is judged before its address is known is refused, which is a
false drop. Latencies are those of one name at a time, with the rules and without them in turn. At last the Pod floods the agent with
answers of 82 addresses each. Needs root.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
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
from antrea.features.network_policy.agent_part.fqdn import FqdnController, packet_in_handler
from antrea.features.network_policy.agent_part.name_scope import pod_scope
from antrea.features.network_policy.agent_part.part import PolicyPackets
from antrea.openflow.fields import PacketIn
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.log.audit_log import AuditLog
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.revalidation import Revalidation
from benchmarks.cni_add import GATEWAY_MAC, namespaces, open_vswitch, processes, sh
from benchmarks.fqdn_flood import flood

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.engine import Sink
    from antrea.features.network_policy.agent.fqdn import FqdnAddress
    from antrea.openflow.packet_in import PacketIn as Packet

NAMES, RATE, WILDCARDS = 10_000, 100, 100
ROUNDS, ALONE = 5, 60
"""How often each latency is measured, and of how many names at a time."""
TARGET_P99, TARGET_MEMORY, TARGET_CPU = 20, 40, 10
"""Milliseconds more, MB more, % of a core."""
NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
POD_IP, POD_MAC, GATEWAY_IP = "10.10.0.7", "0a:00:00:00:00:07", "10.10.0.1"
RESOLVER, PORT = "198.18.255.53", 8080
FLOODS = {"trusted": "198.18.255.54", "untrusted": "198.18.255.66"}
"""Servers of floods."""
TRUSTED = (RESOLVER, FLOODS["trusted"])
PARTS = ("alone", "many", "flood")
"""Of the benchmark: those that are named as arguments, or all."""
SERVER = """
import socket, struct, threading
web = socket.create_server(("", 8080), backlog=1024)
def serve():
    while True:
        web.accept()[0].close()
threading.Thread(target=serve, daemon=True).start()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("198.18.255.53", 53))
print("ready", flush=True)
while True:
    asked, client = server.recvfrom(512)
    end = asked.index(0, 12) + 5
    number = int(asked[14:13 + asked[12]])
    address = struct.pack("!BBH", 198, 18, number)
    answer = b"\\xc0\\x0c" + struct.pack("!HHIH", 1, 1, 300, 4) + address
    server.sendto(asked[:2] + b"\\x81\\x80\\0\\x01\\0\\x01\\0\\0\\0\\0" + asked[12:end] + answer, client)
"""
"""Gives the name `n7.w3.test` the seventh address, and accepts connections to it."""
CLIENT = """
import json, socket, struct, sys, threading, time
first, last, rate, wildcards, server, port = json.loads(sys.argv[1])
taken, failed, lock = [], [], threading.Lock()
def one(number):
    labels = (f"n{number}", f"w{number % wildcards}", "test")
    name = b"".join(bytes([len(part)]) + part.encode() for part in labels) + b"\\0"
    begin, stage = time.perf_counter(), "answer"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
            asks.settimeout(30)
            asks.connect((server, 53))
            asks.send(struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 0) + name + b"\\0\\1\\0\\1")
            said = asks.recv(512)
        assert said[:2] == struct.pack("!H", number)
        stage = "connection"
        with socket.socket() as client:
            client.settimeout(0.9)
            client.connect((socket.inet_ntoa(said[-4:]), port))
        taken.append(1000 * (time.perf_counter() - begin))
    except OSError as no:
        with lock:
            failed.append(f"{number}: {stage}: {no!r}")
threads, start = [], time.perf_counter()
for place, number in enumerate(range(first, last)):
    if not rate:
        one(number)
        continue
    time.sleep(max(0, start + place / rate - time.perf_counter()))
    threads.append(threading.Thread(target=one, args=(number,)))
    threads[-1].start()
for thread in threads:
    thread.join()
print(json.dumps([taken, failed]))
"""
"""Resolves names and connects to each at once: one after the other, or so many a second."""


class Agent:
    """The agent's units, its sinks, its way of packets and its names, on one switch."""

    def __init__(self, directory: Path, ofports: dict[str, int]) -> None:
        self.facts = Facts()
        management = directory / "br-int.mgmt"
        ofctl = Ofctl(management)
        self.packets = SwitchPackets(management, CONFIG)
        policies = PolicyPackets(
            self.facts, self.packets.send, AuditLog(directory / "np.log", CONFIG.audit_logging)
        )
        config = msgspec.structs.replace(CONFIG, fqdn_trusted_dns_servers=TRUSTED)
        scope = pod_scope(self.facts, config, directory / "names")
        self.received = 0
        """Answers that came, of all."""
        self.revalidation = Revalidation(management)
        self.names = FqdnController(self.facts, scope, self._settled, revalidation=self.revalidation)
        self.held: dict[bytes, float] = {}
        """When an answer came, by the packet."""
        self.holds: list[float] = []
        """Milliseconds for which answers were held."""
        answers = packet_in_handler(self.names, self._resume)

        def held(packet: Packet) -> None:
            self.received += 1
            self.held[packet.held] = time.perf_counter()
            answers(packet)

        self.packets.deliver({PacketIn.NETWORK_POLICY: policies.handle, PacketIn.DNS: held})
        flows = FlowSink(ofctl, PIPELINE, 1)
        sinks: dict[type, Sink] = {Flow: flows, Group: flows, Meter: MeterSink(ofctl)}
        for pool, low, high in (bounds for feature in FEATURES for bounds in feature.ranks):
            self.facts.ids.between(pool, low, high)
        gateway = OvsPort("antrea-gw0", "gateway", ofports["antrea-gw0"], GATEWAY_MAC)
        pod = PodInterface("p1", "p1", "shop", "p1", POD_MAC, (POD_IP,), ofports["p1"], "p1")
        member = cp.GroupMember(pod=cp.PodReference(name="p1", namespace="shop"))
        for row in (CONFIG, NODE, RealizedPipeline(PIPELINE), gateway, pod, SentAppliedMember("g", member)):
            self.facts.put(row)
        self.engine = Engine(self.facts, [unit for feature in FEATURES for unit in feature.units], sinks)

    async def _settled(self, row: FqdnAddress) -> None:
        await self.engine.settled(type(row), row.key)

    def _resume(self, packet: Packet) -> None:
        self.holds.append(1000 * (time.perf_counter() - self.held.pop(packet.held)))
        self.packets.resume(packet)

    async def enforce(self, on: bool) -> None:
        """Put the rules on names, or drop them."""
        if on:
            self.facts.put(policy())
        else:
            self.facts.drop(SentPolicy, "p")
        await self.engine.quiet()


def policy() -> SentPolicy:
    """Allow names and DNS, reject the rest."""
    everybody = cp.NetworkPolicyPeer(
        ip_blocks=(cp.IPBlock(cidr=cp.IPNet(ip=b"\0" * 10 + b"\xff\xff\0\0\0\0")),)
    )
    names = cp.NetworkPolicyPeer(fqdns=tuple(f"*.w{number}.test" for number in range(WILDCARDS)))
    dns = (cp.Service(protocol="UDP", port=53),)
    said = ((names, "Allow", ()), (everybody, "Allow", dns), (everybody, "Reject", ()))
    rules = tuple(
        cp.NetworkPolicyRule(
            direction="Out",
            from_=cp.NetworkPolicyPeer(),
            to=peer,
            services=services,
            action=action,
            priority=number,
            enable_logging=False,
        )
        for number, (peer, action, services) in enumerate(said)
    )
    return SentPolicy(
        cp.NetworkPolicy(
            metadata=ObjectMetadata(name="p", uid="p"),
            rules=rules,
            applied_to_groups=("g",),
            tier_priority=250,
            priority=5,
            source_ref=cp.NetworkPolicyReference(type="AntreaClusterNetworkPolicy", name="p", uid="p"),
        )
    )


def connected(directory: Path, space: str) -> dict[str, int]:
    """The Pod and the gateway, behind which all of 198.18.0.0/15 is this namespace; numbers of all ports."""
    vsctl = ("ovs-vsctl", f"--db=unix:{directory}/db.sock", "--timeout=10")
    within = ("nsenter", f"--net={space}")
    sh("ip", "link", "add", "p1", "type", "veth", "peer", "name", "eth0", "netns", Path(space).name)
    sh("ip", "link", "set", "p1", "up")
    sh(*within, "ip", "link", "set", "eth0", "up", "address", POD_MAC)
    sh(*within, "ethtool", "-K", "eth0", "tx", "off")
    sh(*within, "ip", "address", "add", f"{POD_IP}/24", "dev", "eth0")
    sh(*within, "ip", "neigh", "add", GATEWAY_IP, "lladdr", GATEWAY_MAC, "dev", "eth0")
    sh(*within, "ip", "route", "add", "default", "via", GATEWAY_IP)
    sh("ip", "link", "set", "antrea-gw0", "up")
    sh("ip", "address", "add", f"{GATEWAY_IP}/24", "dev", "antrea-gw0")
    sh("ip", "neigh", "add", POD_IP, "lladdr", POD_MAC, "dev", "antrea-gw0")
    sh("ip", "route", "add", "local", "198.18.0.0/15", "dev", "lo")
    sh(*vsctl, "add-port", "br-int", "p1")
    asked = (*vsctl, "--bare", "--columns=name,ofport", "find", "interface")
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(said[::2], map(int, said[1::2]), strict=True))


async def resolve(space: str, first: int, count: int, rate: int) -> tuple[list[float], list[str]]:
    """Milliseconds of each name, and what failed."""
    words = json.dumps([first, first + count, rate, WILDCARDS, RESOLVER, PORT])
    command = ("nsenter", f"--net={space}", sys.executable, "-c", CLIENT, words)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    taken, failed = json.loads(said)
    return taken, failed


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def memory() -> float:
    """MB that this process alone has."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE)) / 1000


def cpu() -> float:
    """Seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of(pid: int) -> float:
    """Seconds of another process."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def alone(agent: Agent, space: str) -> None:
    """Latencies of names that come one at a time."""
    added: dict[str, list[float]] = {"p50": [], "p99": []}
    direct: dict[str, list[float]] = {"p50": [], "p99": []}
    every: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS):
        for on in (False, True):
            await agent.enforce(on)
            taken, failed = await resolve(space, 50_000 + ALONE * number, ALONE, 0)
            assert not failed, failed[:3]
            every[on] += taken
            for name, value in (("p50", statistics.median(taken)), ("p99", p99(taken))):
                (added if on else direct)[name].append(value)
    for name in ("p50", "p99"):
        against = Against("without rules on names", tuple(direct[name]))
        show(f"fqdn_first_connection_{name}", "ms", added[name], against=against)
    more = p99(every[True]) - p99(every[False])
    show("fqdn_first_connection_added_p99", "ms", [more], target=TARGET_P99)
    show("fqdn_answer_held", "ms", agent.holds)
    show("fqdn_answer_held_p99", "ms", [p99(agent.holds)])


async def many(agent: Agent, space: str, switch: int) -> None:
    """All names at a rate, then as many answers again while all are known."""
    await agent.enforce(True)
    before, begin, spent, switched = memory(), time.monotonic(), cpu(), cpu_of(switch)
    agent.holds.clear()
    _, failed = await resolve(space, 0, NAMES, RATE)
    seconds = time.monotonic() - begin
    show(f"fqdn_cpu_new_{RATE}_a_second", "% of a core", [100 * (cpu() - spent) / seconds])
    show(f"fqdn_switch_cpu_new_{RATE}_a_second", "% of a core", [100 * (cpu_of(switch) - switched) / seconds])
    show("fqdn_new_answers_held", "ms", agent.holds)
    show("fqdn_new_answers_held_p99", "ms", [p99(agent.holds)])
    print(f"dropped answers: {dict(agent.names.dropped)}")
    await agent.engine.quiet()
    for one in failed[:5]:
        print(f"failed: {one}")
    show("fqdn_false_drops", f"of {NAMES} names", [len(failed)], target=0)
    show(
        "fqdn_memory",
        f"MB more with {len(agent.names.cache)} names",
        [memory() - before],
        target=TARGET_MEMORY,
    )
    spent, begin = cpu(), time.monotonic()
    _, failed = await resolve(space, 0, RATE * 30, RATE)
    share = 100 * (cpu() - spent) / (time.monotonic() - begin)
    show(f"fqdn_cpu_known_{RATE}_a_second", "% of a core", [share], target=TARGET_CPU)
    show("fqdn_false_drops_known", f"of {RATE * 30} names", [len(failed)], target=0)


async def measure(directory: Path, space: str, switch: int) -> None:
    """All of it; `switch` is the id of ovs-vswitchd."""
    agent = Agent(directory, connected(directory, space))
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        await server.stdout.readline()
        async with asyncio.TaskGroup() as tasks:
            runs = (agent.engine.run(), agent.packets.run(), agent.names.run(), agent.revalidation.run())
            work = [tasks.create_task(one) for one in runs]
            await agent.packets.connected.wait()
            parts = [part for part in PARTS if part in sys.argv] or PARTS
            if "alone" in parts:
                await alone(agent, space)
            if "many" in parts:
                await many(agent, space, switch)
            if "flood" in parts:
                await agent.enforce(True)
                for kind, address in FLOODS.items():
                    await flood(agent, space, address, kind)
            for task in work:
                task.cancel()
    finally:
        server.kill()
        await server.wait()


def main() -> None:
    """In namespaces of its own."""
    with namespaces(1) as spaces, processes() as start, tempfile.TemporaryDirectory(prefix="ovs-") as name:
        *_, switch = open_vswitch(Path(name), start)
        asyncio.run(measure(Path(name), spaces[0], switch))


if __name__ == "__main__":
    main()
