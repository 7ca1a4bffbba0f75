"""Random clusters with Nodes, names and policies of all kinds: real packets to and from a Node meet what antctl explains.

Objects go through the controller's units and the Node's into real nftables. The explanation shares nothing with either.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from node_host import HOME, Host
from policy_cluster import HOSTS, OUTSIDE, PLACES, SERVICES, cluster, ips
from policy_switch import NODE, told

from antrea.apis.annotation import AUDIT, ENFORCEMENT
from antrea.explain.node import as_received
from antrea.explain.objects import objects
from antrea.explain.packet import Packet
from antrea.explain.rule import EGRESS, INGRESS
from antrea.explain.verdict import half
from antrea.explain.world import World
from antrea.facts.member import AgentNode
from antrea.facts.service import Service
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember, SentPolicy
from antrea.features.node_policy.fqdn import AnswerQueue, NodeFqdnAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

    from antrea.engine import Engine

PACKETS = 150
"""Of one cluster."""
MORE = 2
"""Clusters whose policies come to those of another."""
AUDITED = 0.2
"""Share of the policies that are audited: packets meet what they would without these."""
GATE = "NodeNetworkPolicy"
PORTS = (80, 8080, 8085, 8090, 53, 10351, 10349)
"""Those that rules name, and two that the guard keeps."""
NAME = "*.example.com"
NAMED = OUTSIDE[0]
"""Addresses of names that rules have."""
OWN = (HOSTS[0][0], *HOSTS[2])
OTHERS = tuple(
    dict.fromkeys(
        ip
        for ip in (
            *(ip for _, _, _, number, last in PLACES for ip in ips(number, last)),
            *(ip for pair in OUTSIDE for ip in pair),
            HOSTS[1][0],
            *HOSTS[3],
            *(ip for _, _, *found in SERVICES for ip in found if ip not in ("", "None")),
        )
        if ip
    )
)
SERVER = f"""
import selectors, socket
chosen = selectors.DefaultSelector()
for ip in ADDRESSES:
    kind = socket.AF_INET6 if ":" in ip else socket.AF_INET
    for port in {PORTS!r}:
        for type_ in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            one = socket.socket(kind, type_)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((ip, port))
            if type_ == socket.SOCK_STREAM:
                one.listen(256)
            one.setblocking(False)
            chosen.register(one, selectors.EVENT_READ, type_)
print("listening", flush=True)
while True:
    for key, _ in chosen.select():
        if key.data == socket.SOCK_STREAM:
            key.fileobj.accept()[0].close()
        else:
            data, client = key.fileobj.recvfrom(64)
            key.fileobj.sendto(data, client)
"""
CLIENT = """
import json, socket, sys, threading
asked = json.loads(sys.stdin.read())
found = ["" for _ in asked]
def one(number, protocol, source, source_port, target, port):
    kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, kind) as client:
        client.settimeout(float(sys.argv[1]))
        try:
            client.bind((source, source_port))
            client.connect((target, port))
            if protocol == "UDP":
                client.send(b"x")
                client.recv(9)
            found[number] = "Allow"
        except TimeoutError:
            found[number] = "Drop"
        except OSError as no:
            found[number] = "Reject"
threads = [threading.Thread(target=one, args=(number, *one_asked)) for number, one_asked in enumerate(asked)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(found))
"""


class Probe(NamedTuple):
    """A packet, what is said of it, and why."""

    direction: str
    words: tuple[str, str, int, str, int]
    """Protocol, source and its port, destination and its port."""
    verdict: str
    sentence: str
    packet: Packet
    found: str = ""


class Wire:
    """The Node's namespace has its addresses, the one beside it all others."""

    def __init__(self, netns: Namespaces) -> None:
        self.netns = netns
        self.host = Host(netns)
        # each datagram that is rejected is told
        netns.sh("sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0")
        add(netns, OWN, netns.home)
        add(netns, OTHERS, self.host.beside)
        for version, beside in (("-4", "192.0.2.10"), ("-6", "2001:db8:2::10")):
            netns.sh(f"ip {version} route add default via {beside}")
        for ip in OWN:
            via = HOME["ip6" if ":" in ip else "ip"]
            if ip != via:
                netns.sh(f"ip {'-6' if ':' in ip else '-4'} route add {ip} via {via}", self.host.beside)
        self._ports = {"low": 1024, "high": 20_000}

    def source_port(self, rnd: random.Random) -> int:
        """No two packets are of one connection, so that none stands by another; rules name ports up to 5000."""
        kind = rnd.choice(("low", "high"))
        first, last = {"low": (1024, 5000), "high": (20_000, 60_000)}[kind]
        self._ports[kind] = first if self._ports[kind] >= last else self._ports[kind] + 1
        return self._ports[kind]

    async def found(self, space: str, probes: list[Probe], seconds: float) -> list[str]:
        words = ("ip", "netns", "exec", space, sys.executable, "-c", CLIENT, str(seconds))
        run = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await run.communicate(json.dumps([one.words for one in probes]).encode())
        return list(json.loads(said))


def add(netns: Namespaces, addresses: tuple[str, ...], space: str) -> None:
    there = netns.sh("ip -o addr", space)
    for ip in addresses:
        if f" {ip}/" not in there:
            netns.sh(f"ip addr add {ip}/{'128' if ':' in ip else '32'} dev lo", space)


def on_nodes(rnd: random.Random) -> dict[str, list[dict[str, Any]]]:
    """A cluster with more policies, most of which are for Nodes, and name few ports by name; some are audited."""
    found = cluster(rnd)
    for draw in range(MORE):
        for policy in cluster(rnd)["cluster_policies"]:
            meta = policy["metadata"]
            meta |= {"name": f"{meta['name']}-{draw}", "uid": f"{meta['uid']}-{draw}"}
            found["cluster_policies"].append(policy)
    for policy in found["cluster_policies"]:
        spec = policy["spec"]
        rules = (*spec["ingress"], *spec["egress"])
        if rnd.random() < AUDITED:
            policy["metadata"]["annotations"] = {ENFORCEMENT: AUDIT}
        if rnd.random() < 0.8:
            spec["appliedTo"] = [{"nodeSelector": {}}]
            for rule in rules:
                rule.pop("appliedTo", None)
        for rule in (rule for rule in rules if "toServices" in rule):
            # what admission refuses otherwise
            rule |= {"ports": [], "protocols": []}
        for port in (port for rule in rules for port in rule["ports"]):
            if isinstance(port.get("port"), str) and rnd.random() < 0.9:
                port["port"] = rnd.choice(PORTS)
    return found


def packets(world: World, wire: Wire, rnd: random.Random) -> Iterator[Probe]:
    """Half of them to the Node, half from it."""
    for number in range(PACKETS):
        v6 = rnd.random() < 0.4
        own = [ip for ip in OWN if (":" in ip) == v6]
        others = [ip for ip in OTHERS if (":" in ip) == v6]
        mine, other = rnd.choice(own), rnd.choice(others)
        protocol, port, source_port = rnd.choice(("TCP", "UDP")), rnd.choice(PORTS), wire.source_port(rnd)
        direction = (INGRESS, EGRESS)[number % 2]
        ends = (other, mine) if direction == INGRESS else (mine, other)
        source, last = map(world.owner, ends)
        names = ("www.example.com",) if last.ip in NAMED else ()
        destination = msgspec.structs.replace(last, names=names, names_of="n1")
        yield probe_of(world, Packet(source, destination, protocol, port, source_port), direction)


def probe_of(world: World, packet: Packet, direction: str) -> Probe:
    said = half(world, packet, direction)
    seen = as_received(world, packet, direction).source.ip
    assert packet.port is not None
    assert packet.source_port is not None
    words = (packet.protocol, seen, packet.source_port, packet.destination.ip, packet.port)
    return Probe(direction, words, said.verdict, said.sentence, packet)


@pytest.fixture
def wire(netns: Namespaces) -> Wire:
    return Wire(netns)


async def differing(wire: Wire, engine: Engine, seed: int) -> tuple[list[str], int]:
    """Packets of one cluster that meet something else than is explained, and how many are refused.

    Then one of its audited policies is enforced, and the same packets, from other ports, meet what that makes of them.
    """
    rnd = random.Random(seed)
    drawn = on_nodes(rnd)
    world = World(objects(drawn), gates=(GATE,))
    probes = list(packets(world, wire, rnd))
    wrong = await enforced(wire, engine, rnd, world, probes)
    if uid := change_over(rnd, drawn):
        after = World(objects(drawn), gates=(GATE,))
        later = [probe_of(after, moved(wire, rnd, one).packet, one.direction) for one in probes]
        wrong += await enforced(wire, engine, rnd, after, later)
        wrong += [one for one in later if moves_others(world, after, one, uid)]
    return [f"seed {seed}: {one}" for one in wrong], sum(one.verdict != "Allow" for one in probes)


async def enforced(
    wire: Wire, engine: Engine, rnd: random.Random, world: World, probes: list[Probe]
) -> list[Probe]:
    """Those that meet something else than is explained."""
    rows = list(told(world.objects))
    for kind in (SentPolicy, SentAppliedMember, SentAddressMember, Service):
        wire.host.facts.replace(kind, [row for row in rows if isinstance(row, kind)])
    await engine.quiet()
    assert not engine.errors.standing, engine.errors.standing
    wrong = await differences(wire, probes)
    # a busy machine may not answer in time
    return await differences(wire, [moved(wire, rnd, one) for one in wrong], 3.0) if wrong else []


def change_over(rnd: random.Random, drawn: dict[str, list[dict[str, Any]]]) -> str:
    """Enforce one audited policy, in place; its UID, empty if none is audited."""
    audited = [one for one in drawn["cluster_policies"] if "annotations" in one["metadata"]]
    if not audited:
        return ""
    meta = rnd.choice(audited)["metadata"]
    del meta["annotations"]
    return str(meta["uid"])


def moves_others(before: World, after: World, probe: Probe, uid: str) -> bool:
    """Whether a packet is decided otherwise than before, and not by this policy."""
    was, now = half(before, probe.packet, probe.direction), half(after, probe.packet, probe.direction)
    passed = [one.rule for one in now.lost if one.rule.action == "Pass"]
    return (was.verdict, was.rule) != (now.verdict, now.rule) and uid not in {
        one.uid for one in (now.rule, *passed) if one is not None
    }


def moved(wire: Wire, rnd: random.Random, probe: Probe) -> Probe:
    """The same from another port of the same kind."""
    protocol, source, port, *rest = probe.words
    number = wire.source_port(rnd)
    while (number <= 5000) is not (port <= 5000):
        number = wire.source_port(rnd)
    packet = msgspec.structs.replace(probe.packet, source_port=number)
    return probe._replace(words=(protocol, source, number, *rest), packet=packet)  # type: ignore[arg-type]


async def differences(wire: Wire, probes: list[Probe], seconds: float = 1.5) -> list[Probe]:
    into = [one for one in probes if one.direction == INGRESS]
    out = [one for one in probes if one.direction == EGRESS]
    spaces = ((wire.host.beside, into), (wire.netns.home, out))
    found = await asyncio.gather(*(wire.found(space, some, seconds) for space, some in spaces))
    pairs = zip((*into, *out), (*found[0], *found[1]), strict=True)
    return [one._replace(found=said) for one, said in pairs if not agree(one, said)]


def agree(probe: Probe, said: str) -> bool:
    """The kernel refuses a datagram of the Node's own process that is dropped in the same way as one that is rejected."""
    if probe.direction == EGRESS and probe.words[0] == "UDP" and probe.verdict == "Drop":
        return said in ("Drop", "Reject")
    return said == probe.verdict


async def trial(wire: Wire, first: int, count: int) -> None:
    served = [SERVER.replace("ADDRESSES", repr(some)) for some in (OWN, OTHERS)]
    refused, cidrs = 0, (NODE.pod_cidrs, ("10.10.1.0/24", "fd00:10:1::/64"))
    nodes = [
        AgentNode(name=name, ips=(ip,), transport_ips=(ip,), pod_cidrs=own)
        for name, (ip, _), own in zip(("n1", "n2"), HOSTS, cidrs, strict=False)
    ]
    names = [NodeFqdnAddress(NAME, ip) for ip in NAMED]
    with (
        wire.netns.serving(wire.netns.home, served[0]),
        wire.netns.serving(wire.host.beside, served[1]),
    ):
        async with wire.host.enforced(*nodes, *names, AnswerQueue("of no matter here")) as engine:
            for seed in range(first, first + count):
                wrong, denied = await differing(wire, engine, seed)
                assert not wrong, "\n".join(wrong)
                refused += denied
    assert refused > count * PACKETS / 20


async def test_packets_of_random_clusters_meet_what_is_explained(wire: Wire) -> None:
    await trial(wire, 1, 3)


@pytest.mark.wide
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
async def test_packets_of_many_random_clusters_meet_what_is_explained(wire: Wire, part: int) -> None:
    await trial(wire, 1000 + 100 * part, 100)
