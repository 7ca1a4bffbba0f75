"""Random policies and packets, what the words of the APIs say of them, and what a real switch does with them."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from policy_switch import CONFIG, FEATURES, GATEWAY, NEW, NODE, PEER, PIPELINE, TUNNEL

from antrea.engine import Engine, Facts
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from tests.unit.features.policy_world import (
    addresses,
    applied,
    block,
    interface,
    member,
    native,
    peer,
    policy,
    port,
    rule,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from ovs_bridge import OvsBridge

    from antrea.apis import controlplane as cp
    from antrea.facts.fact import Fact

ANY = [block("0.0.0.0/0"), block("::/0")]
BASELINE = 253


class Pod(NamedTuple):
    """A Pod, of this Node if it has a port there."""

    name: str
    ips: tuple[str, str]
    number: int
    """Its OpenFlow port."""
    http: int
    """The number of its port `http`; 0 if it has none."""

    @property
    def told(self) -> cp.GroupMember:
        return member(self.name, *self.ips, **({"http": self.http} if self.http else {}))


LOCAL = [
    Pod(f"p{n}", (f"10.10.0.{n}", f"fd00:10::{n:x}"), n, http)
    for n, http in ((11, 80), (12, 8080), (13, 80), (14, 0))
]
FAR = [
    Pod(f"f{n}", (f"10.10.1.{n}", f"fd00:10:1::{n:x}"), 0, http)
    for n, http in ((11, 80), (12, 8081), (13, 0))
]
OUTSIDE = [
    Pod("x1", ("203.0.113.1", "2001:db8::1"), 0, 0),
    Pod("x2", ("203.0.113.130", "2001:db8:1::1"), 0, 0),
]


class OneRule(NamedTuple):
    """As a user writes it: groups are names of Pods, ports are (protocol, number or name, last)."""

    direction: str
    groups: tuple[frozenset[str], ...]
    blocks: tuple[tuple[str, tuple[str, ...]], ...]
    ports: tuple[tuple[str, int | str, int], ...]
    everybody: bool
    action: str = "Allow"
    logged: bool = False


class OnePolicy(NamedTuple):
    """Of Kubernetes, if it has no Tier."""

    pods: frozenset[str]
    rules: tuple[OneRule, ...]
    tier: int = 0
    priority: float = 0


class Packet(NamedTuple):
    source: Pod
    destination: Pod
    v6: bool
    protocol: str
    port: int


# The oracle: the words of the NetworkPolicy API, and nothing of ours.


def has_port(one: OneRule, packet: Packet, http: int) -> bool:
    for protocol, number, last in one.ports:
        first = http if number == "http" else number
        if protocol == packet.protocol and first and int(first) <= packet.port <= max(last, int(first)):
            return True
    return not one.ports


def in_block(address: str, cidr: str, holes: tuple[str, ...]) -> bool:
    found = ip_address(address)
    return found in ip_network(cidr) and not any(found in ip_network(hole) for hole in holes)


def matches(one: OneRule, packet: Packet) -> bool:
    other = packet.source if one.direction == "In" else packet.destination
    in_groups = any(other.name in group for group in one.groups)
    in_blocks = one.everybody or any(in_block(other.ips[packet.v6], *found) for found in one.blocks)
    if one.direction == "In":
        return (in_groups or in_blocks) and has_port(one, packet, packet.destination.http)
    return (in_groups and has_port(one, packet, packet.destination.http)) or (
        in_blocks and has_port(one, packet, 0)
    )


def passes(policies: Sequence[OnePolicy], packet: Packet) -> bool:
    """Of both directions, as far as the Pod is one of this Node."""
    sends, receives = packet.source, packet.destination
    return not (
        (sends.number and not _direction_passes(policies, "Out", sends, packet))
        or (receives.number and not _direction_passes(policies, "In", receives, packet))
    )


def _direction_passes(policies: Sequence[OnePolicy], direction: str, pod: Pod, packet: Packet) -> bool:
    mine = [
        (each.tier, each.priority, index, number, one)
        for number, each in enumerate(policies)
        if pod.name in each.pods
        for index, one in enumerate(one for one in each.rules if one.direction == direction)
    ]
    ordered = sorted(row for row in mine if row[0])
    early = [one for tier, *_, one in ordered if tier != BASELINE and matches(one, packet)]
    if early and early[0].action != "Pass":
        return early[0].action == "Allow"
    kube = [one for tier, *_, one in mine if not tier]
    if kube:
        return any(matches(one, packet) for one in kube)
    late = [one for tier, *_, one in ordered if tier == BASELINE and matches(one, packet)]
    return not late or late[0].action == "Allow"


# The same policies as the controller tells them.


def group_name(pods: Iterable[str]) -> str:
    return "group of " + ",".join(sorted(pods))


def told(name: str, one: OnePolicy) -> list[Fact]:
    rows: list[Fact] = applied(group_name(one.pods), *(pod.told for pod in LOCAL if pod.name in one.pods))
    found: list[cp.NetworkPolicyRule] = []
    for each in one.rules:
        for group in each.groups:
            rows += addresses(group_name(group), *(pod.told for pod in (*LOCAL, *FAR) if pod.name in group))
        blocks = ANY if each.everybody else [block(cidr, *holes) for cidr, holes in each.blocks]
        other = peer(*map(group_name, each.groups), blocks=blocks)
        ports = [port(number, last or None, protocol) for protocol, number, last in each.ports]
        number = sum(before.direction == each.direction for before in one.rules[: len(found)])
        stated = rule(each.direction, other, *ports, action=each.action, priority=number)
        found.append(msgspec.structs.replace(stated, enable_logging=each.logged))
    if not one.tier:
        return [*rows, policy(name, group_name(one.pods), *found)]
    return [*rows, native(name, group_name(one.pods), *found, tier=one.tier, priority=one.priority)]


def entries_of(policies: Iterable[OnePolicy]) -> list[object]:
    """Everything that the agent wants."""
    facts = Facts()
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    node: tuple[Fact, ...] = (CONFIG, NODE, PEER, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE))
    pods = (interface(pod.name, pod.number, *pod.ips) for pod in LOCAL)
    rows = (row for number, one in enumerate(policies) for row in told(f"policy-{number}", one))
    for row in (*node, *pods, *rows):
        facts.put(row)
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    engine.plan()
    assert not engine.errors.standing
    return list(engine.standing().values())


def some_rule(rnd: random.Random, actions: Sequence[str] = ("Allow",)) -> OneRule:
    names = [pod.name for pod in (*LOCAL, *FAR)]
    groups = tuple(frozenset(rnd.sample(names, rnd.randrange(1, 4))) for _ in range(rnd.randrange(3)))
    choices = [
        ("10.10.1.0/24", ()),
        ("203.0.113.0/24", ("203.0.113.128/25",)),
        ("2001:db8::/32", ("2001:db8:1::/48",)),
        ("10.0.0.0/8", ("10.10.0.0/24", "10.10.1.12/32")),
    ]
    ports: list[tuple[str, int | str, int]] = [
        ("TCP", 80, 0),
        ("TCP", "http", 0),
        ("TCP", 8080, 8090),
        ("UDP", 53, 0),
        ("SCTP", 80, 0),
    ]
    return OneRule(
        rnd.choice(("In", "Out")),
        groups,
        tuple(rnd.sample(choices, rnd.randrange(3))),
        tuple(rnd.sample(ports, rnd.randrange(3))),
        everybody=not groups and rnd.random() < 0.3,
        action=rnd.choice(actions),
        logged=rnd.random() < 0.3,
    )


def some_packet(rnd: random.Random) -> Packet:
    source = rnd.choice((*LOCAL, *LOCAL, *FAR, *OUTSIDE))
    others = LOCAL if source not in LOCAL else (*LOCAL, *FAR, *OUTSIDE)
    destination = rnd.choice([pod for pod in others if pod is not source])
    protocol = rnd.choice(("TCP", "TCP", "TCP", "UDP", "SCTP", "ICMP"))
    number = rnd.choice((80, 80, 8080, 8081, 8085, 8090, 8091, 53)) if protocol != "ICMP" else 0
    return Packet(source, destination, rnd.random() < 0.4, protocol, number)


def entry(packet: Packet) -> str:
    """The packet where it enters the bridge."""
    source, destination = packet.source, packet.destination
    kind = {"ICMP": "icmp"}.get(packet.protocol, packet.protocol.lower()) + ("6" if packet.v6 else "")
    address = "ipv6_{}={}" if packet.v6 else "nw_{}={}"
    remote = source in FAR
    in_port = source.number or (TUNNEL.ofport if remote else GATEWAY.ofport)
    mac = f"0a:00:00:00:00:{source.number:02x}" if source.number else GATEWAY.mac
    to = f"0a:00:00:00:00:{destination.number:02x}" if destination.number else GATEWAY.mac
    terms = [
        f"in_port={in_port}",
        kind,
        f"dl_src={mac}",
        f"dl_dst={'aa:bb:cc:dd:ee:ff' if remote else to}",
        address.format("src", source.ips[packet.v6]),
        address.format("dst", destination.ips[packet.v6]),
        *(
            ["nw_ttl=64", f"{packet.protocol.lower()}_dst={packet.port}"]
            if packet.port
            else ["nw_ttl=64", "icmpv6_type=128" if packet.v6 else "icmp_type=8"]
        ),
    ]
    return ",".join(terms)


def sent_to(ovs: OvsBridge, packet: str, state: Iterable[str] = NEW) -> int:
    """The port by which the first packet of a connection leaves; 0 if it is dropped."""
    trace = ovs.appctl("ofproto/trace", "br-int", packet, *state)
    found = re.findall(r"-> output port is (\d+)", trace)
    return int(found[-1]) if found else 0


def ports() -> dict[str, int]:
    """What the bridge must have, by name."""
    return {"tun": TUNNEL.ofport, "gw": GATEWAY.ofport} | {pod.name: pod.number for pod in LOCAL}


def expected(packet: Packet) -> int:
    """The port that leads to the destination."""
    there = packet.destination
    return there.number or (TUNNEL.ofport if there in FAR else GATEWAY.ofport)


def install(ovs: OvsBridge, policies: Iterable[OnePolicy]) -> None:
    ovs.clear()
    ovs.install(entries_of(policies), PIPELINE)
