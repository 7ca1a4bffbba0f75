"""What a real switch does with a packet: objects go through the controller's units and the agent's, flows are traced."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from policy_cluster import OUTSIDE, PLACES, ips

from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.controller.compute.runtime import FEATURES as COMPUTED
from antrea.engine import Engine, Facts
from antrea.explain.objects import KINDS, Objects, objects
from antrea.explain.packet import End, Packet
from antrea.explain.service import Endpoint
from antrea.explain.verdict import AT_NODE_PORT
from antrea.explain.world import World
from antrea.facts.fact import each
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.service import ServicePort
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.grouping.publication import Membership, Memberships, PublishedPolicy
from antrea.features.network_policy.agent.conjunction import number
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.fqdn import FqdnAddress, FqdnPattern
from antrea.features.network_policy.agent.fqdn_cache import FqdnCache
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember, SentPolicy
from antrea.features.network_policy.agent.rule import Conjunction, PolicyRule
from antrea.features.node_route.agent import FEATURE as NODE_ROUTE
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import FEATURE as ANTREA_PROXY
from antrea.features.proxy.agent import KUBE_PROXY
from antrea.features.proxy.dsr import DIRECT_IPS
from antrea.features.proxy.dsr import FEATURE as DSR
from antrea.features.proxy.dsr_node_port import FEATURE as DSR_NODE_PORT
from antrea.features.proxy.host import NODE_PORT_IPS
from antrea.features.proxy.service import endpoint_rows, service_row
from antrea.openflow.audit_trace import enforced_part
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from policy_cluster import Cluster, Question

    from antrea.explain.verdict import Half, Judged
    from antrea.explain.world import Proxy
    from antrea.facts.fact import Fact
    from antrea.features.framework.agent_feature import AgentFeature

CONFIG = AgentConfig(ovs_datapath_type="netdev", service_cidr_v6="fd00:96::/112")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("192.0.2.1",))
PEER = PeerNode("n2", ("10.10.1.0/24", "fd00:10:1::/64"), ("192.0.2.2",), ("192.0.2.2",))
GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:02")
TUNNEL = OvsPort("antrea-tun0", "tunnel", 1, "0a:00:00:00:00:01")


class Served(NamedTuple):
    """What serves Services on the Node, with the features and tables of the agent beside it."""

    features: tuple[AgentFeature, ...]
    pipeline: Pipeline


def _served(proxy: AgentFeature, config: AgentConfig = CONFIG, *more: AgentFeature) -> Served:
    features = (POD_CONNECTIVITY, NODE_ROUTE, proxy, *more, POLICY)
    families = Families.of(NODE.pod_cidrs)
    return Served(
        features, Pipeline.realize(table for one in features for table in one.tables_of(config, families))
    )


PROXY_ALL = msgspec.structs.replace(CONFIG, antrea_proxy=AntreaProxy(proxy_all=True))
BY_KUBE_PROXY, BY_ANTREA = _served(KUBE_PROXY), _served(ANTREA_PROXY)
BY_ANTREA_ALONE = _served(ANTREA_PROXY, PROXY_ALL)
DIRECTLY = _served(ANTREA_PROXY, PROXY_ALL, DSR, DSR_NODE_PORT)
FEATURES, PIPELINE = BY_KUBE_PROXY
NAMED = dict(
    zip(
        (ip for pair in OUTSIDE for ip in pair),
        (("www.example.com",), ("www.example.com", "example.com"), ("example.com",), ("other.test",)),
        strict=True,
    )
)
"""Names of addresses, by DNS answers."""
LOCAL = {
    f"{space}/{name}": PodInterface(
        f"{name}-0", f"c-{name}", space, name, f"0a:00:00:00:00:{last:02x}", ips(0, last), last, f"u-{name}"
    )
    for space, name, node, _, last in PLACES
    if node == "n1"
}
NEW = [word for _ in range(8) for word in ("--ct-next", "trk,new")]
_GROUP = re.compile(r"^ *group_id=(\d+),(.*)$", re.MULTILINE)
_BUCKET = re.compile(r"set_field:(0x[0-9a-f]+)->(xx)?reg3,set_field:(0x[0-9a-f]+)/0xffff->reg4")
_CHOICE = re.compile(r"^ +group:(\d+)$", re.MULTILINE)
_TRANSLATED = re.compile(r"\bnat\(dst=\[?([0-9a-f:.]+?)\]?:(\d+)\)")
_PASSED = re.compile(r"^ +set_field:0x2000000/0x2000000->reg4$", re.MULTILINE)
"""Marked, so that its Endpoint answers the client."""
_LOADED = re.compile(r"set_field:(0x[0-9a-f]+)->reg3\n +set_field:(0x[0-9a-f]+)/0xffff->reg4")
REJECTED = "userdata=04"
_BACK = re.compile(r"^ +IN_PORT$", re.MULTILINE)
"""Out of the port that the packet came by."""
_CAME_BY = re.compile(r"^Flow: .*\bin_port=(\d+)", re.MULTILINE)
_OUT = re.compile(r"-> output port is (\d+)")
_CONJ = re.compile(r"^ *(\d+)\. (?:[^ ]*,)?conj_id=(\d+)[, ]", re.MULTILINE)


class Decided(NamedTuple):
    """The rules of Antrea's own policies that decide, by UID of the policy, direction and number; None: none of these."""

    port: int
    """By which the packet leaves; 0: it does not."""
    egress: tuple[str, str, int] | None
    ingress: tuple[str, str, int] | None


def ports() -> dict[str, int]:
    """What the bridge must have, by name."""
    return {"tun": TUNNEL.ofport, "gw": GATEWAY.ofport} | {row.name: row.ofport for row in LOCAL.values()}


def told(found: Objects) -> Iterator[Fact]:
    """What the controller tells the agent of Node n1 of these objects, and the Services that it hears of itself."""
    facts = Facts()
    for watched in (one for feature in COMPUTED for one in feature.watched):
        for kind in (kind for kind in KINDS if kind.struct is watched.kind):
            for one in getattr(found, kind.field):
                for row in each(watched.row(one)):
                    facts.put(row)
    engine = Engine(facts, [unit for feature in COMPUTED for unit in feature.units])
    plan = engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    yield from filter(None, map(service_row, found.services))
    yield from (row for one in found.endpoint_slices for row in endpoint_rows(one))
    members = (one for entry in plan.put if isinstance(entry, Memberships) for one in entry.each())
    for entry in (*plan.put, *members):
        if isinstance(entry, PublishedPolicy) and NODE.name in entry.nodes:
            yield SentPolicy(entry.policy)
        elif isinstance(entry, Membership) and entry.resource == "addressgroups":
            yield SentAddressMember(entry.name, entry.member)
        elif (
            isinstance(entry, Membership) and entry.resource == "appliedtogroups" and entry.node == NODE.name
        ):
            yield SentAppliedMember(entry.name, entry.member)


def served_by(proxy: Proxy | None) -> Served:
    """With these settings of AntreaProxy; None: it is off."""
    if proxy is None:
        return BY_KUBE_PROXY
    if proxy.direct_default:
        return DIRECTLY
    return BY_ANTREA_ALONE if proxy.all_addresses else BY_ANTREA


def known(world: World) -> Iterator[Fact]:
    """What the agent has of its Node, and of AntreaProxy where that is on."""
    yield from (NODE, GATEWAY, TUNNEL)
    if (proxy := world.proxy) is None:
        yield from (PEER, CONFIG, RealizedPipeline(BY_KUBE_PROXY.pipeline))
        return
    own = AntreaProxy(
        proxy_all=proxy.all_addresses,
        skip_services=tuple(sorted(proxy.skipped)),
        proxy_load_balancer_ips=proxy.balanced_addresses,
        service_proxy_name=proxy.name,
        default_load_balancer_mode="dsr" if proxy.direct_default == "dsr" else "nat",
    )
    gates = {"AntreaProxy", "AntreaPolicy", *(("PreferSameTrafficDistribution",) if proxy.node_hints else ())}
    gates |= {"LoadBalancerModeDSR"} if proxy.direct_default else set()
    yield LocalAddress(NODE.node_ips[0], "eth0")
    yield from (
        msgspec.structs.replace(CONFIG, antrea_proxy=own),
        RealizedPipeline(served_by(proxy).pipeline),
    )
    yield EnabledGates("agent", frozenset(gates))
    for node in (NODE, PEER):
        labels = world.nodes[node.name].metadata.labels if node.name in world.nodes else {}
        yield AgentNode(
            node.name, node.node_ips, node.node_ips, tuple(sorted(labels.items())), pod_cidrs=node.pod_cidrs
        )


def answered(facts: Facts) -> Iterator[FqdnAddress]:
    """Addresses of names in rules, as DNS answers to Pods of Node n1 gave them."""
    cache = FqdnCache()
    cache.set_patterns({row.pattern for row in facts.all(FqdnPattern)})
    for ip, names in NAMED.items():
        for name in names:
            cache.learn(name, ((ip, 60),), 0)
    yield from (row for row, present in cache.changes().items() if present)


class Agent:
    """The agent's units over what it was told."""

    def __init__(self, world: World) -> None:
        self.served = served_by(world.proxy)
        self.facts = facts = Facts()
        for pool, low, high in POLICY.ranks:
            facts.ids.between(pool, low, high)
        for row in (*known(world), *LOCAL.values(), *told(world.objects)):
            facts.put(row)
        engine = Engine(facts, [unit for feature in self.served.features for unit in feature.units])
        engine.plan()
        for row in answered(facts):
            facts.put(row)
        engine.plan()
        assert not engine.errors.standing, engine.errors.standing
        self.entries = list(engine.standing().values())
        self.rules = {number(facts, one): facts.get(PolicyRule, one.rule) for one in facts.all(Conjunction)}

    def decided(self, trace: str) -> Decided:
        """What a trace says; copies for audited policies count for nothing."""
        trace = enforced_part(trace)
        out = _OUT.findall(trace) or (_CAME_BY.findall(trace)[:1] if _BACK.search(trace) else [])
        found: dict[str, tuple[str, str, int] | None] = {}
        for conjunction in _CONJ.findall(trace):
            rule = self.rules[int(conjunction[1])]
            assert rule is not None
            order, direction = rule.order, "Egress" if rule.egress else "Ingress"
            decides = rule.action != "Pass"
            found[direction] = (order.uid, direction, order.rule) if order and decides else None
        return Decided(int(out[-1]) if out else 0, found.get("Egress"), found.get("Ingress"))


class Switch:
    """br-int of a private OVS: its flows by ovs-ofctl, traces by its control socket without a process in between."""

    def __init__(self, directory: Path) -> None:
        self._management = directory / "br-int.mgmt"
        self._control = socket.socket(socket.AF_UNIX)
        self._control.settimeout(30)
        self._control.connect(str(directory / "ovs-vswitchd.ctl"))
        self._calls = 0
        self._meters: set[Meter] = set()

    def install(self, entries: Sequence[object], pipeline: Pipeline = PIPELINE) -> None:
        """The flows and groups of these and no others; the meters that they name, which are the same in every agent."""
        lines = "".join(f"flow add {flow.text(pipeline, 1)}\n" for flow in entries if isinstance(flow, Flow))
        groups = (line for group in entries if isinstance(group, Group) for line in group.lines(pipeline))
        lines = "".join(f"group {line}\n" for line in groups) + lines
        target = ("ovs-ofctl", "-O", "OpenFlow15")
        for what in ("del-flows", "del-groups"):
            subprocess.run([*target, what, self._management], check=True)
        for meter in entries:
            if isinstance(meter, Meter) and meter not in self._meters:
                subprocess.run([*target, "add-meter", self._management, meter.text], check=True)
                self._meters.add(meter)
        subprocess.run(
            [*target, "bundle", self._management, "-"], input=lines.encode(), check=True, capture_output=True
        )

    def groups(self) -> dict[int, frozenset[Endpoint]]:
        """What the switch chooses from, by the number of the group."""
        target = ("ovs-ofctl", "-O", "OpenFlow15", "dump-groups", self._management)
        text = subprocess.run(target, check=True, capture_output=True, text=True).stdout
        return {
            int(line[1]): frozenset(
                Endpoint(_address(bucket[1], bool(bucket[2])), int(bucket[3], 16))
                for bucket in _BUCKET.finditer(line[2])
            )
            for line in _GROUP.finditer(text)
        }

    def trace(self, flow: str, *, learns: bool = False) -> str:
        """ofproto/trace of the first packet of a connection; `learns`: with the flows that it adds to the switch."""
        self._calls += 1
        words = ["br-int", flow, *NEW, *(["-generate"] if learns else [])]
        call = {"id": self._calls, "method": "ofproto/trace", "params": words}
        self._control.sendall(json.dumps(call).encode())
        data = b""
        while True:
            piece = self._control.recv(1 << 20)
            assert piece, "ovs-vswitchd has ended"
            data += piece
            try:
                answer = json.loads(data)
            except ValueError:
                continue
            assert answer["error"] is None, (flow, answer["error"])
            return str(answer["result"])

    def close(self) -> None:
        self._control.close()


def packet_of(world: World, asked: Question) -> Packet:
    """As the explanation takes it."""
    kind, code = asked.icmp or (None, None)
    source, last = world.end(asked.source, asked.v), world.end(asked.destination, asked.v)
    destination = msgspec.structs.replace(last, names=NAMED.get(last.ip, ()), names_of=NODE.name)
    return Packet(
        source,
        destination,
        asked.protocol,
        asked.port,
        asked.source_port,
        kind,
        code,
        names=tuple(NAMED.items()),
    )


def entry(packet: Packet, choice: int = 1) -> str:
    """The packet where it enters the bridge of Node n1; `choice` is the hash by which groups choose."""
    v6 = ":" in packet.source.ip
    kind = packet.protocol.lower() + ("6" if v6 else "")
    source, destination = LOCAL.get(packet.source.name), LOCAL.get(packet.destination.name)
    remote = _remote(packet.source)
    in_port = source.ofport if source else TUNNEL.ofport if remote else GATEWAY.ofport
    mac = source.mac if source else GATEWAY.mac
    to = "aa:bb:cc:dd:ee:ff" if remote else destination.mac if destination else GATEWAY.mac
    address = "ipv6_{}={}" if v6 else "nw_{}={}"
    terms = [
        *(f"in_port={in_port}", kind, f"dl_src={mac}", f"dl_dst={to}"),
        *(address.format("src", packet.source.ip), address.format("dst", packet.destination.ip), "nw_ttl=64"),
        f"dp_hash={choice:#x}",
    ]
    if packet.protocol == "ICMP":
        name = "icmpv6" if v6 else "icmp"
        return ",".join([*terms, f"{name}_type={packet.icmp_type}", f"{name}_code={packet.icmp_code}"])
    low = packet.protocol.lower()
    return ",".join([*terms, f"{low}_src={packet.source_port}", f"{low}_dst={packet.port}"])


def _remote(end: End) -> bool:
    """Of the other Node, whose packets come and go by the tunnel."""
    return end.ip.startswith(("10.10.1.", "fd00:10:1:"))


def exit_port(packet: Packet) -> int:
    """Where the packet leaves if no policy is against it."""
    there = LOCAL.get(packet.destination.name)
    return there.ofport if there else TUNNEL.ofport if _remote(packet.destination) else GATEWAY.ofport


def world_of(found: Cluster, proxy: Proxy | None = None) -> World:
    """The objects for the explanation."""
    return World(objects(found), proxy)


def _address(number: str, v6: bool) -> str:
    return str(IPv6Address(int(number, 16)) if v6 else IPv4Address(int(number, 16)))


def choice(trace: str) -> tuple[int, Endpoint | None]:
    """The group that chose, 0 if none did; and the Endpoint that it chose."""
    group, to = _CHOICE.search(trace), _TRANSLATED.search(trace)
    if to is None and (passed := _PASSED.search(trace)):
        address, port = _LOADED.findall(trace[: passed.start()])[-1]
        return int(group[1]) if group else 0, Endpoint(_address(address, v6=False), int(port, 16))
    return int(group[1]) if group else 0, Endpoint(to[1], int(to[2])) if to else None


def is_passed_on(trace: str) -> bool:
    """Whether the packet leaves as it came, for its Endpoint to answer."""
    return _PASSED.search(trace) is not None and _TRANSLATED.search(trace) is None


def entered(facts: Facts, packet: Packet) -> Packet:
    """As the host hands over what comes to a NodePort: with the address by which the switch knows it."""
    asked = packet.destination.ip == NODE.node_ips[0]
    for port in facts.all(ServicePort) if asked else ():
        if (port.protocol, port.node_port) == (packet.protocol, packet.port) and port.node_port:
            ip = DIRECT_IPS[0] if port.direct else NODE_PORT_IPS[0]
            return msgspec.structs.replace(packet, destination=End(ip))
    return packet


def expected(found: Judged, packet: Packet, *, direct: bool = False) -> Decided:
    """What the explanation says of the part that happens on this Node."""
    if packet.node_port:
        return _expected_at_node_port(found, packet, direct=direct)
    egress = found.egress if packet.source.name in LOCAL else None
    ingress = found.ingress if packet.destination.name in LOCAL else None
    if egress is not None and egress.verdict != "Allow":
        return Decided(0, _decider(egress), None)
    refused = ingress is not None and ingress.verdict != "Allow"
    return Decided(0 if refused else exit_port(packet), _decider(egress), _decider(ingress))


def _expected_at_node_port(found: Judged, packet: Packet, *, direct: bool) -> Decided:
    """Rules for the Service are of this Node, those for a Pod of another Node are not: where these decide, the first let it pass.

    What an Endpoint elsewhere gets as it came, `direct`, is judged there alone.
    """
    half, local = found.ingress, packet.destination.name in LOCAL
    if direct:
        return Decided(exit_port(packet), None, None)
    by_service = half.pod == ""
    if half.verdict != "Allow" and (local or by_service):
        return Decided(0, None, _decider(half))
    decider = _decider(half) if local or by_service else _decider_before(half)
    return Decided(exit_port(packet), None, decider)


def _decider_before(half: Half) -> tuple[str, str, int] | None:
    """The rule for the Service that let the packet on to the Pod."""
    found = (one.rule for one in half.lost if one.why == AT_NODE_PORT)
    return next(((rule.uid, rule.direction, rule.index) for rule in found if rule.tier), None)


def _decider(half: Half | None) -> tuple[str, str, int] | None:
    if half is None or half.rule is None or not half.rule.tier:
        return None
    return (half.rule.uid, half.direction, half.rule.index)
