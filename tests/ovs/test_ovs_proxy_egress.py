"""A Pod with an Egress asks Services: an Endpoint inside the cluster sees the Pod, one outside the Egress IP, in both families."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import pytest
from policy_switch import GATEWAY
from proxy_switch import HOST, OUTSIDE, OWN, REMOTE, six

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressPod
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.host.carrier import mark_mac
from tests.unit.features.policy_world import interface

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

Datapath = Literal["system", "netdev"]
GATES = frozenset({"Egress", "AntreaProxy", "AntreaPolicy"})
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), OWN, OWN)
PEER = PeerNode("n2", ("10.10.1.0/24", "fd00:10:1::/64"), HOST, HOST)
TUNNEL = OvsPort("antrea-tun0", "tunnel", 1, "0a:00:00:00:00:01")
CLIENT, SERVER = interface("p11", 11), interface("p12", 12)
EGRESS_IPS = ("192.0.2.77", "2001:db8:2::77")
SERVICES = {
    "here": ("10.96.0.10", "fd00:96::a"),
    "there": ("10.96.0.11", "fd00:96::b"),
    "beyond": ("10.96.0.12", "fd00:96::c"),
}
ENDS = {"here": SERVER.ips, "there": REMOTE, "beyond": OUTSIDE}
"""The only Endpoint of each, in both families."""


@pytest.fixture(scope="module")
def ports(ovs: OvsBridge) -> OvsBridge:
    names = {"antrea-tun0": 1, GATEWAY.name: GATEWAY.ofport}
    ovs.add_ports(names | {one.name: one.ofport for one in (CLIENT, SERVER)})
    return ovs


def install(bridge: OvsBridge, datapath: Datapath) -> Facts:
    config, features = AgentConfig(ovs_datapath_type=datapath), active(GATES)
    pipeline, facts = pipeline_of(features, config, NODE), Facts()
    known = (config, NODE, PEER, GATEWAY, TUNNEL, CLIENT, SERVER, RealizedPipeline(pipeline))
    for row in (*known, EnabledGates("agent", GATES)):
        facts.put(row)
    for name, ips in SERVICES.items():
        facts.put(Service("a", name, ips, (("TCP", 80),), port_names=("",), node_ports=(0,)))
        for number, ip in enumerate(ENDS[name]):
            where = {"here": "n1", "there": "n2"}.get(name, "")
            key = (f"a/{name}-{number}", f"a/{name}", "", "TCP")
            facts.put(ServiceEndpoint(*key, ip, 8080, where, True, True, False))
    for number, ip in enumerate(EGRESS_IPS):
        facts.put(LocalAddress(ip, "eth0"))
        facts.put(Egress(f"out-{number}", "u", ip, node="n1"))
        facts.put(EgressPod(f"out-{number}", CLIENT.pod))
    for feature in features:
        for pool, low, high in feature.ranks:
            facts.ids.between(pool, low, high)
    engine = Engine(facts, [unit for feature in features for unit in feature.units])
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    bridge.clear()
    bridge.install(engine.standing().values(), pipeline)
    return facts


def traced(bridge: OvsBridge, to: str) -> tuple[str, int, int, str]:
    """The client's connection to port 80 there: the Endpoint, where the packet leaves, with which mark and source MAC."""
    version, name = ("tcp6", "ipv6") if ":" in to else ("tcp", "nw")
    ends = f"{name}_src={CLIENT.ips[':' in to]},{name}_dst={to},nw_ttl=64,tcp_src=40000,tcp_dst=80,dp_hash=1"
    packet = f"in_port={CLIENT.ofport},dl_src={CLIENT.mac},dl_dst={GATEWAY.mac},{version},{ends}"
    states = [word for _ in range(4) for word in ("--ct-next", "trk,new")]
    text = bridge.appctl("ofproto/trace", "br-int", packet, *states)
    final = [line for line in text.splitlines() if line.startswith("Final flow: ") and "=" in line][-1]
    found = dict(re.findall(r"[:, ]([a-z0-9_]+)=([^,]+)", final))
    out = re.findall(r"output port is (\d+)", text)
    chosen = re.findall(r"nat\(dst=\[?([^\]\)]*?)\]?:8080\)", text)
    return (chosen or [""])[0], int((out or ["0"])[-1]), int(found.get("pkt_mark", "0"), 0), found["dl_src"]


@six
@pytest.mark.parametrize("datapath", ["system", "netdev"])
def test_the_endpoint_decides_whether_a_connection_leaves_with_the_egress_ip(
    ports: OvsBridge, datapath: Datapath, six: bool
) -> None:
    facts = install(ports, datapath)
    number = facts.ids.number("egress-mark", EGRESS_IPS[six])
    marked = (number, CLIENT.mac) if datapath == "system" else (0, mark_mac(number))
    plain = {name: traced(ports, ips[six])[:3] for name, ips in SERVICES.items() if name != "beyond"}
    assert plain == {
        "here": (SERVER.ips[six], SERVER.ofport, 0),
        "there": (REMOTE[six], TUNNEL.ofport, 0),
    }
    beyond = traced(ports, SERVICES["beyond"][six])
    assert beyond == (OUTSIDE[six], GATEWAY.ofport, *marked)
