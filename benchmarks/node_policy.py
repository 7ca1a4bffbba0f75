"""How long does a Node take to turn policies on 1,000 Nodes into nftables, and what do large sets cost packets?

The agent's units on node policies and its sink of nftables run in a network namespace of their own: 100 rules whose peers are
a group of 1,000 Nodes, then one more member. Then UDP datagrams come in by a cable, past a rule whose set has so many addresses,
none of them the sender's. Needs root.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import statistics
import subprocess
import sys
import time
from ipaddress import IPv4Address
from typing import Any

from figure import Against, show

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts, Unit
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.node import ThisNode
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.node_target import NodeTarget, node_target
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember, SentPolicy
from antrea.features.node_policy.unit import UNITS
from antrea.outside.nftables.sink import KINDS, NftSink

NODES, RULES = 1000, 100
SIZES = (0, 1, 1000, 10000)
"""Addresses in the set; 0: no policy at all."""
FLAT = 10
"""Percent: what is less is flat."""
PACKETS, BURSTS, TIMES = 200, 500, 5
"""Of so many bursts of packets the fastest counts, in each of so many rounds: it takes 2 ms, in which mostly nobody else has the processor."""
NEW_NETWORK = 0x40000000
NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
SEND = """
import socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect(("192.0.2.1", 9))
packets, bursts = map(int, sys.argv[1:])
def burst():
    begin = time.perf_counter()
    for _ in range(packets):
        try:
            client.send(b"12345678")
        except ConnectionRefusedError:
            pass
    return time.perf_counter() - begin
print(min(burst() for _ in range(bursts)))
"""


def member(number: int) -> SentAddressMember:
    """A Node of the group."""
    ip = str(IPv4Address("10.100.0.0") + number)
    return SentAddressMember(
        "nodes", cp.GroupMember(node=cp.NodeReference(name=f"n{number}"), ips=(packed(ip),))
    )


def policy(rules: int, action: str = "Drop") -> SentPolicy:
    """On all Nodes; peers are the group."""
    peer = cp.NetworkPolicyPeer(address_groups=("nodes",))
    found = tuple(
        cp.NetworkPolicyRule(
            direction="In",
            from_=peer,
            to=cp.NetworkPolicyPeer(),
            services=(cp.Service(protocol="UDP", port=9 if rules == 1 else 1000 + number),),
            action=action,
            priority=number,
            enable_logging=False,
        )
        for number in range(rules)
    )
    return SentPolicy(
        cp.NetworkPolicy(
            metadata=ObjectMetadata(name="p", uid="p"),
            rules=found,
            applied_to_groups=("all",),
            tier_priority=250,
            priority=5,
            source_ref=cp.NetworkPolicyReference(type="AntreaClusterNetworkPolicy", name="p", uid="p"),
        )
    )


class Agent:
    """The Node's engine with what node policies need."""

    def __init__(self) -> None:
        self.facts = Facts()
        units = [Unit(SentAppliedMember, node_target, yields=(NodeTarget,)), *UNITS]
        self.engine: Engine = Engine(self.facts, units, dict.fromkeys(KINDS, NftSink()))
        own = cp.GroupMember(node=cp.NodeReference(name="n1"))
        server = ApiServerEndpoint("192.0.2.100", 6443)
        for row in (AgentConfig(), NODE, server, SentAppliedMember("all", own)):
            self.facts.put(row)

    async def settle(self, *rows: Any) -> float:
        """Seconds until these are in the kernel."""
        begin = time.perf_counter()
        for row in rows:
            self.facts.put(row)
        await self.engine.quiet()
        return time.perf_counter() - begin


def ipset_and_iptables() -> float:
    """Seconds in which the programs ipset and iptables take the same, as upstream states it: a set for each rule."""
    members = [str(IPv4Address("10.100.0.0") + number) for number in range(NODES)]
    sets = [f"create p{number} hash:ip" for number in range(RULES)]
    sets += [f"add p{number} {ip}" for number in range(RULES) for ip in members]
    match = "-m set --match-set p{} src -p udp --dport {} -j DROP"
    lines = [f"-A INPUT {match.format(number, 1000 + number)}" for number in range(RULES)]
    begin = time.perf_counter()
    given = (("ipset", "\n".join(sets)), ("iptables", "\n".join(["*filter", *lines, "COMMIT"])))
    for program, text in given:
        words = [program, "restore"] if program == "ipset" else [f"{program}-restore"]
        subprocess.run(words, input=f"{text}\n", text=True, check=True)
    seconds = time.perf_counter() - begin
    sh("iptables", "-F")
    sh("ipset", "destroy")
    return seconds


def sh(*words: str) -> str:
    """Output of a command, which has to succeed."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


async def run() -> None:
    """All of it."""
    agent = Agent()
    work = asyncio.create_task(agent.engine.run())
    await agent.settle()
    whole, theirs = [], []
    for _ in range(TIMES):
        whole.append(await agent.settle(policy(RULES), *map(member, range(NODES))))
        one = [1000 * await agent.settle(member(NODES + number)) for number in range(50)]
        agent.facts.drop(SentPolicy, "p")
        agent.facts.replace(SentAddressMember, [])
        await agent.engine.quiet()
        theirs.append(ipset_and_iptables())
    other = Against("ipset and iptables, a set for each rule", tuple(theirs))
    fastest = statistics.median(other.values)
    show(f"{RULES} rules on {NODES} Nodes in nftables", "s", whole, against=other, target=fastest)
    show("one more Node in their set", "ms", one)
    space = f"antrea-bench-{os.getpid()}"
    sh("ip", "netns", "add", space)
    try:
        sh("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", space)
        for words in ("link set eth0 up", "addr add 192.0.2.1/24 dev eth0"):
            sh("ip", *words.split())
        for words in ("link set eth0 up", "addr add 192.0.2.9/24 dev eth0"):
            sh("ip", "-n", space, *words.split())
        rates: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(TIMES):
            for size in SIZES:
                agent.facts.drop(SentPolicy, "p")
                if size:
                    agent.facts.put(policy(1))
                    agent.facts.replace(SentAddressMember, [member(number) for number in range(size)])
                await agent.engine.quiet()
                burst = (str(PACKETS), str(BURSTS))
                send = ("ip", "netns", "exec", space, sys.executable, "-c", SEND, *burst)
                rates[size].append(PACKETS / float(await asyncio.to_thread(sh, *send)))
        without = Against("without a policy", tuple(rates[0]))
        for size in SIZES[1:]:
            show(f"packets past a set of {size} addresses", "packets/s", rates[size], against=without)
        few, many = (statistics.median(rates[size]) for size in (SIZES[1], SIZES[-1]))
        slower = 100 * (few / many - 1)
        show(
            f"time of a packet more past {SIZES[-1]} addresses than past {SIZES[1]}",
            "%",
            [slower],
            target=FLAT,
        )
    finally:
        sh("ip", "netns", "del", space)
    work.cancel()


if __name__ == "__main__":
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    asyncio.run(run())
