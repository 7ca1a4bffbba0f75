"""A Node that serves all Services, in a switch: `web` with a NodePort and external addresses, and what becomes of its packets."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from policy_switch import CONFIG as BASE
from policy_switch import GATEWAY, NEW, NODE, PEER, TUNNEL

from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, Transport
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.node_route.agent import FEATURE as NODE_ROUTE
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import FEATURE as PROXY
from antrea.features.proxy.dsr import FEATURE as DSR
from antrea.features.proxy.dsr_no_tunnel import FEATURE as DSR_NO_TUNNEL
from antrea.features.proxy.dsr_node_port import FEATURE as DSR_NODE_PORT
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.openflow.pipeline import Pipeline
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.ofctl import Ofctl
from tests.unit.features.policy_world import interface

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ovs_bridge import OvsBridge

    from antrea.facts.fact import Fact

CONFIG = msgspec.structs.replace(BASE, antrea_proxy=AntreaProxy(proxy_all=True))
BASIC = (POD_CONNECTIVITY, NODE_ROUTE, PROXY, POLICY)
POD = interface("p12", 12)
CLUSTER, EXTERNAL, BALANCED = (
    ("10.96.0.10", "fd00:96::a"),
    ("198.51.100.9", "2001:db8::9"),
    ("198.51.100.8", "2001:db8::8"),
)
VIRTUAL, NODE_PORT = ("169.254.0.252", "fc01::aabb:ccdd:eefe"), 30080
OWN, HAIRPIN = ("192.0.2.1", "2001:db8:2::1"), ("169.254.0.253", "fc01::aabb:ccdd:eeff")
GATEWAYS, OUTSIDE = ("10.10.0.1", "fd00:10::1"), ("203.0.113.7", "2001:db8:7::7")
REMOTE, HOST = ("10.10.1.12", "fd00:10:1::c"), ("192.0.2.2", "2001:db8:2::2")
WEB = Service(
    "a",
    "web",
    CLUSTER + EXTERNAL + BALANCED,
    (("TCP", 80),),
    external_ips=EXTERNAL + BALANCED,
    port_names=("http",),
    node_ports=(NODE_PORT,),
    load_balancer_ips=BALANCED,
    created="2026-01-01T00:00:00Z",
)
THIS = msgspec.structs.replace(NODE, node_ips=OWN)
LOCAL = msgspec.structs.replace(WEB, external_local=True)
STICKY = msgspec.structs.replace(WEB, affinity_seconds=100)
DIRECT = msgspec.structs.replace(WEB, mode="dsr")
NODES = (
    AgentNode("n1", OWN, OWN, pod_cidrs=NODE.pod_cidrs),
    AgentNode("n2", HOST, HOST, pod_cidrs=PEER.pod_cidrs),
)
six = pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])


def endpoint(ip: str, node: str = "n1", service: str = "a/web") -> ServiceEndpoint:
    family = "6" if ":" in ip else "4"
    return ServiceEndpoint(f"{service}-{family}", service, "http", "TCP", ip, 8080, node, True, True, False)


class Verdict(NamedTuple):
    """What becomes of a packet: destination and source after translation, and the port; `rejected` by the agent."""

    to: str = ""
    source: str = ""
    port: int = 0
    rejected: bool = False


CARD = Transport("eth0", "eth0", "0a:00:00:00:01:01", 1500, ("192.0.2.1/24", "2001:db8:2::1/64"))
NEIGHBOURS = tuple(
    msgspec.structs.replace(row, mac=f"0a:00:00:00:01:0{number}") for number, row in enumerate(NODES, 1)
)
"""The Nodes, when each has told its MAC."""


def install(bridge: OvsBridge, *rows: Fact, dsr: bool = False, tunnels: bool = True) -> Facts:
    """Have the switch serve these, and give what the agent knows; with `dsr` the gate LoadBalancerModeDSR is on."""
    engine, pipeline = planned(*rows, dsr=dsr, tunnels=tunnels)
    bridge.clear()
    bridge.install(engine.standing().values(), pipeline)
    return engine.facts


def planned(*rows: Fact, dsr: bool = False, tunnels: bool = True) -> tuple[Engine, Pipeline]:
    """What the agent wants for these."""
    facts = Facts()
    features = (*BASIC, DSR, DSR_NODE_PORT, DSR_NO_TUNNEL) if dsr else BASIC
    families = Families.of(NODE.pod_cidrs)
    config = CONFIG if tunnels else msgspec.structs.replace(CONFIG, traffic_encap_mode="noEncap")
    ports = (TUNNEL,) if tunnels else (CARD, *NEIGHBOURS)
    pipeline = Pipeline.realize(table for one in features for table in one.tables_of(config, families))
    addresses = [LocalAddress(ip, "eth0") for ip in OWN]
    gates = EnabledGates(
        "agent", frozenset({"AntreaProxy", "AntreaPolicy", *(["LoadBalancerModeDSR"] if dsr else [])})
    )
    known = (config, THIS, GATEWAY, RealizedPipeline(pipeline), gates, *NODES, *ports, *addresses, POD)
    for row in (*known, *rows):
        facts.put(row)
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    engine = Engine(facts, [unit for one in features for unit in one.units])
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    return engine, pipeline


class ServedNode:
    """The switch, which follows what changes as under the agent: by one bundle, so that what clients have learned stays."""

    def __init__(self, bridge: OvsBridge, *rows: Fact, dsr: bool = False) -> None:
        self.engine, self.pipeline = planned(*rows, dsr=dsr)
        self.facts, self._bridge = self.engine.facts, bridge
        self._sink = FlowSink(Ofctl(bridge.process.directory / "br-int.mgmt"), self.pipeline, 1)
        bridge.clear()
        self.replay()

    def replay(self) -> None:
        """All of it, as after a restart of the switch."""
        standing = list(self.engine.standing().values())
        for meter in standing:
            if isinstance(meter, Meter):
                self._bridge.ofctl("add-meter", meter.text)
        asyncio.run(self._sink.resync(in_order(standing)))

    def change(self, *rows: Fact) -> None:
        """These Services and Endpoints, and no others."""
        wanted = {(type(row), row.key) for row in rows}
        for kind in (Service, ServiceEndpoint):
            for row in list(self.facts.all(kind)):
                if (kind, row.key) not in wanted:
                    self.facts.drop(kind, row.key)
        for row in rows:
            self.facts.put(row)
        plan = self.engine.plan()
        assert not self.engine.errors.standing, self.engine.errors.standing
        asyncio.run(self._sink.apply(in_order(plan.put), in_order(plan.drop)[::-1]))
        self._bridge.appctl("revalidator/wait")


def in_order(entries: Iterable[object]) -> list[Flow | Group]:
    """Flows and groups as the engine sends them: what receives a packet before what sends it there."""
    return sorted((one for one in entries if isinstance(one, Flow | Group)), key=lambda one: one.rank)


def trace(
    bridge: OvsBridge,
    source: str,
    to: str,
    port: int = 80,
    *,
    learns: bool = False,
    state: str = "new",
    protocol: str = "tcp",
) -> Verdict:
    """A packet: of the Pod, if it is from its address, else by the gateway; `state` is what connection tracking finds."""
    pod = source in POD.ips
    number, mac = (POD.ofport, POD.mac) if pod else (GATEWAY.ofport, GATEWAY.mac)
    ends = f"in_port={number},dl_src={mac},dl_dst={GATEWAY.mac if pod else 'aa:bb:cc:dd:ee:ff'}"
    return verdict(bridge, ends, source, to, port, learns=learns, state=state, protocol=protocol)


def verdict(
    bridge: OvsBridge,
    ends: str,
    source: str,
    to: str,
    port: int,
    *,
    learns: bool = False,
    state: str = "new",
    protocol: str = "tcp",
) -> Verdict:
    """What becomes of a packet with these terms of a match about where it is."""
    kind, name = (f"{protocol}6", "ipv6") if ":" in to else (protocol, "nw")
    numbers = f"{protocol}_src=40000,{protocol}_dst={port}"
    packet = f"{ends},{kind},{name}_src={source},{name}_dst={to},nw_ttl=64,{numbers},dp_hash=1"
    tracked = [word if word == "--ct-next" else f"trk,{state}" for word in NEW]
    text = bridge.appctl("ofproto/trace", "br-int", packet, *tracked, *(("-generate",) if learns else ()))
    out = re.findall(r"output port is (\S+)", text)
    back = re.search(r"^ +IN_PORT$", text, re.MULTILINE)
    number = int(re.findall(r"in_port=(\d+)", ends)[0])
    return Verdict(
        next(iter(re.findall(r"nat\(dst=\[?([^\]\)]*?)\]?:8080\)", text)), ""),
        next(iter(re.findall(r"nat\(src=([^)]*)\)", text)), ""),
        number if back else int(out[-1]) if out else 0,
        "userdata=04" in text,
    )


def asked(six: bool) -> list[tuple[str, int]]:
    """The addresses at which hosts outside ask for the Service."""
    return [(VIRTUAL[six], NODE_PORT), (EXTERNAL[six], 80), (BALANCED[six], 80)]


def learned(bridge: OvsBridge) -> list[str]:
    """Flows that the switch has added itself."""
    found = (line for line in bridge.dump() if "_timeout=" in line and "learn(" not in line)
    # for UDP, too, OVS shows what it does not take back
    return [line.replace("fin_timeout(idle_timeout=5),", "") for line in found]
