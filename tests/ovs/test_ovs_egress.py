"""Where a real switch sends what leaves the cluster, and with which mark, on either datapath and in either family."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import pytest
from wide_pool import wide_pool

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import Egress as EgressSection
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressLimit, EgressPod
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.host.carrier import ip_mac, mark_mac

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

NODE = ThisNode(
    "n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1", "fd00:2::1"), ("192.0.2.1", "fd00:2::1")
)
PEER = PeerNode(
    "n2", ("10.10.1.0/24", "fd00:10:1::/64"), ("192.0.2.2", "fd00:2::2"), ("192.0.2.2", "fd00:2::2")
)
GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:02")
TUNNEL = OvsPort("antrea-tun0", "tunnel", 1, "0a:00:00:00:00:01")
EXCEPT = ("198.18.0.0/15", "fd00:18::/32")
HERE, THERE = {4: "203.0.113.1", 6: "fd00:9::1"}, {4: "203.0.113.2", 6: "fd00:9::2"}
OUT, EXCEPTED = {4: "198.51.100.9", 6: "2001:db8::9"}, {4: "198.18.0.9", 6: "fd00:18::9"}
MINE, THEIRS = {4: "192.0.2.1", 6: "fd00:2::1"}, {4: "192.0.2.2", 6: "fd00:2::2"}
SERVICE, SERVICES_V6 = {4: "10.96.0.10", 6: "fd00:96::a"}, "fd00:96::/112"
FAR_POD, FAR_END = {4: "10.10.1.9", 6: "fd00:10:1::9"}, "192.0.2.2"
NEW, REPLY = "trk,new", "trk,est,rpl"


def pod(name: str, number: int) -> PodInterface:
    ips = (f"10.10.0.{number}", f"fd00:10::{number}")
    return PodInterface(name, name, "shop", name, f"0a:00:00:00:01:{number:02x}", ips, number, name)


NEAR, REMOTE, PLAIN = pod("near", 11), pod("remote", 12), pod("plain", 13)
SELECTIVE = pod("selective", 14), pod("afar", 15)
"""Of Egresses with destinations, whose address is here, and on the other Node."""
CLOSED, HALF, YOUNGER = pod("closed", 16), pod("half", 17), pod("younger", 18)
"""Of Egresses whose pool does not exist, has an address of IPv4 alone to give, or gave both to an older one."""
PORTS = {"antrea-tun0": 1, "antrea-gw0": 2} | {
    one.name: one.ofport for one in (NEAR, REMOTE, PLAIN, *SELECTIVE, CLOSED, HALF, YOUNGER)
}
INSIDE, OUTLYING = {4: "203.0.114.9", 6: "fd00:14::9"}, {4: "203.0.114.200", 6: "fd00:14:1::9"}
CIDRS = ("203.0.114.0/24", "203.0.115.0/24", "fd00:14::/31")
EXCEPTS = ("203.0.114.128/25", "fd00:14:1::/48")


Datapath = Literal["system", "netdev"]


class Switch:
    """A bridge with all flows of a Node that has the addresses HERE, and `traced`, which follows one packet."""

    def __init__(self, ovs: OvsBridge, datapath: Datapath, limit: EgressLimit | None) -> None:
        """`limit` is that of the Egresses whose address is here; None: the gate of bandwidths is off, too."""
        self.ovs, self.marks, self.limit = ovs, datapath == "system", limit
        section = EgressSection(except_cidrs=EXCEPT)
        config = AgentConfig(ovs_datapath_type=datapath, egress=section, service_cidr_v6=SERVICES_V6)
        gates = {"Egress", "EgressTrafficShaping"} if limit else {"Egress"}
        features, facts = active(gates), Facts()
        pipeline = pipeline_of(features, config, NODE)
        pods = (NEAR, REMOTE, PLAIN, *SELECTIVE, CLOSED, HALF, YOUNGER)
        for row in (config, NODE, PEER, GATEWAY, TUNNEL, *pods, RealizedPipeline(pipeline), wide_pool("p")):
            facts.put(row)
        facts.put(Egress("closed", "u", pool="none"))
        facts.put(Egress("half", "u", HERE[4], "p", of=2))
        facts.put(Egress("half", "u", "", "none", slot=1, of=2))
        for version in (4, 6):
            facts.put(Egress(f"older{version}", "u", HERE[version], "p", "0"))
            facts.put(Egress(f"younger{version}", "u", HERE[version], "p", "1"))
            facts.put(EgressPod(f"younger{version}", YOUNGER.pod))
        for name in ("closed", "half"):
            facts.put(EgressPod(name, f"shop/{name}"))
        for version in (4, 6):
            facts.put(LocalAddress(HERE[version], "eth0"))
            for who, ip in (("near", HERE[version]), ("remote", THERE[version])):
                place = "n2" if who == "remote" else "n1"
                facts.put(Egress(f"{who}{version}", "u", ip, node=place, limit=limit))
                facts.put(EgressPod(f"{who}{version}", f"shop/{who}"))
            for one, ip, place in ((SELECTIVE[0], HERE[version], "n1"), (SELECTIVE[1], THERE[version], "n2")):
                name = f"{one.name}{version}"
                facts.put(Egress(name, "u", ip, node=place, cidrs=CIDRS, excepts=EXCEPTS))
                facts.put(EgressPod(name, one.pod))
        self.pipeline = pipeline
        self.engine = Engine(facts, [unit for feature in features for unit in feature.units])
        self.engine.plan()
        ovs.clear()
        ovs.install(self.engine.standing().values(), pipeline)
        self.number = {version: facts.ids.number("egress-mark", HERE[version]) for version in (4, 6)}

    def metered(self, packet: str, state: str = NEW) -> int:
        """How many meters it passes."""
        return trace(self.ovs, packet, state).count("meter(")

    def away(self, ip: str) -> Way:
        """To the Node that has the address: where the tunnel ends says which one it is, or else the source MAC."""
        source = GATEWAY.mac if self.marks and ":" not in ip else ip_mac(ip)
        return Way("1", 0, source, ip if self.marks else FAR_END)

    def traced(self, packet: str, state: str = NEW) -> Way:
        return traced(self.ovs, packet, state)


class Way(NamedTuple):
    """How a packet leaves: the port (empty: it is dropped), the mark, the source MAC, the other end of the tunnel."""

    port: str
    mark: int
    source: str
    end: str


def trace(ovs: OvsBridge, packet: str, state: str) -> str:
    next_states = [word for _ in range(4) for word in ("--ct-next", state)]
    return ovs.appctl("ofproto/trace", "br-int", packet, *next_states)


def traced(ovs: OvsBridge, packet: str, state: str = NEW) -> Way:
    """How the packet leaves the switch."""
    said = trace(ovs, packet, state)
    ports = re.findall(r"output port is (\d+)", said)
    fields = [line for line in said.splitlines() if line.startswith("Final flow: ") and "=" in line][-1]
    found = dict(re.findall(r"[:, ]([a-z0-9_]+)=([^,]+)", fields))
    ends = {found.get("tun_dst", "0.0.0.0"), found.get("tun_ipv6_dst", "::")} - {"0.0.0.0", "::"}
    end = ",".join(ends) if ports == ["1"] else ""
    mark = int(found.get("pkt_mark", "0"), 0)
    return Way(ports[-1] if ports else "", mark, found["dl_src"], end)


@pytest.fixture(scope="module")
def ports(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(PORTS)
    return ovs


WAYS: list[tuple[Datapath, EgressLimit | None]] = [
    (datapath, limit) for datapath in ("system", "netdev") for limit in (None, EgressLimit(1000, 100))
]
CORE = {("system", False), ("netdev", True)}
"""Each datapath, and each of with and without a limit: the meter is before and behind the same flows on both."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (name, limit),
            id=f"{name}{' limited' * bool(limit)}",
            marks=() if (name, bool(limit)) in CORE else pytest.mark.wide,
        )
        for name, limit in WAYS
    ],
)
def switch(request: pytest.FixtureRequest, ports: OvsBridge) -> Switch:
    return Switch(ports, *request.param)


def from_pod(sender: PodInterface, to: str) -> str:
    family, name = ("ipv6", "ipv6") if ":" in to else ("ip", "nw")
    macs = f"dl_src={sender.mac},dl_dst={GATEWAY.mac}"
    ips = f"{name}_src={sender.ips[':' in to]},{name}_dst={to}"
    return f"in_port={sender.ofport},{family},{macs},{ips},nw_ttl=64"


def from_tunnel(ip: str, *, marks: bool) -> str:
    """Of a Pod of the other Node to the world, for Egress IP `ip`."""
    version = 6 if ":" in ip else 4
    family, name = ("ipv6", "ipv6") if version == 6 else ("ip", "nw")
    # where no tunnel ends at an Egress IP, it ends at the Node's address
    tunnel = f"tun_{'ipv6_' if version == 6 else ''}dst={ip}" if marks else f"tun_dst={MINE[4]}"
    source = "0a:00:00:00:00:99" if marks and version == 4 else ip_mac(ip)
    macs = f"dl_src={source},dl_dst=aa:bb:cc:dd:ee:ff"
    return f"in_port=1,{tunnel},{family},{macs},{name}_src={FAR_POD[version]},{name}_dst={OUT[version]},nw_ttl=64"


VERSIONS = pytest.mark.parametrize("version", [4, 6])


@VERSIONS
def test_a_pod_goes_out_by_the_gateway_with_the_mark_of_its_egress_ip(switch: Switch, version: int) -> None:
    number = switch.number[version]
    marked = (number, NEAR.mac) if switch.marks else (0, mark_mac(number))
    assert switch.traced(from_pod(NEAR, OUT[version])) == Way("2", *marked, "")
    assert switch.traced(from_pod(NEAR, OUT[version]), "trk,est") == Way("2", *marked, "")
    assert switch.traced(from_pod(PLAIN, OUT[version])) == Way("2", 0, PLAIN.mac, "")


@VERSIONS
@pytest.mark.parametrize("state", [NEW, "trk,est"])
def test_a_pod_whose_egress_has_no_address_to_use_sends_nothing_out_of_the_cluster(
    switch: Switch, version: int, state: str
) -> None:
    number = switch.number[4]
    marked = (number, HALF.mac) if switch.marks else (0, mark_mac(number))
    assert switch.traced(from_pod(HALF, OUT[4]), state) == Way("2", *marked, "")
    for sender in (CLOSED, YOUNGER, *(() if version == 4 else (HALF,))):
        assert switch.traced(from_pod(sender, OUT[version]), state).port == ""
        assert switch.traced(from_pod(sender, OUT[version]), REPLY) == Way("2", 0, sender.mac, "")
        for to in (EXCEPTED, MINE, THEIRS, SERVICE):
            assert switch.traced(from_pod(sender, to[version]), state) == Way("2", 0, sender.mac, "")
        assert switch.traced(from_pod(sender, FAR_POD[version]), state).port == "1"


@VERSIONS
@pytest.mark.parametrize("to", [EXCEPTED, MINE, THEIRS], ids=["except", "this Node", "other Node"])
def test_what_is_excepted_goes_out_without_a_mark(switch: Switch, version: int, to: dict[int, str]) -> None:
    assert switch.traced(from_pod(NEAR, to[version])) == Way("2", 0, NEAR.mac, "")
    assert switch.traced(from_pod(REMOTE, to[version])) == Way("2", 0, REMOTE.mac, "")


@VERSIONS
@pytest.mark.parametrize("state", [NEW, "trk,est"])
def test_no_packet_to_a_service_leaves_its_node_before_kube_proxy_has_served_it(
    switch: Switch, version: int, state: str
) -> None:
    for sender in (NEAR, REMOTE, PLAIN):
        assert switch.traced(from_pod(sender, SERVICE[version]), state) == Way("2", 0, sender.mac, "")


@VERSIONS
def test_replies_to_the_world_keep_their_way_and_their_source(switch: Switch, version: int) -> None:
    assert switch.traced(from_pod(NEAR, OUT[version]), REPLY) == Way("2", 0, NEAR.mac, "")
    assert switch.traced(from_pod(REMOTE, OUT[version]), REPLY) == Way("2", 0, REMOTE.mac, "")


@VERSIONS
def test_pods_of_the_cluster_are_reached_without_a_detour(switch: Switch, version: int) -> None:
    assert switch.traced(from_pod(NEAR, FAR_POD[version])) == Way("1", 0, GATEWAY.mac, FAR_END)
    assert switch.traced(from_pod(REMOTE, FAR_POD[version])) == Way("1", 0, GATEWAY.mac, FAR_END)


@VERSIONS
def test_a_pod_goes_to_the_node_that_has_its_egress_ip_by_the_tunnel(switch: Switch, version: int) -> None:
    way = switch.traced(from_pod(REMOTE, OUT[version]))
    assert way == switch.away(THERE[version])


@VERSIONS
def test_a_pod_of_another_node_goes_out_with_an_egress_ip_that_is_here_and_else_not_at_all(
    switch: Switch, version: int
) -> None:
    number = switch.number[version]
    way = switch.traced(from_tunnel(HERE[version], marks=switch.marks))
    assert (way.port, way.mark) == ("2", number if switch.marks else 0)
    assert switch.marks or way.source == mark_mac(number)
    assert switch.traced(from_tunnel(THERE[version], marks=switch.marks)).port == ""


@VERSIONS
@pytest.mark.parametrize("state", [NEW, "trk,est"])
def test_no_packet_is_compared_with_tunnels_of_the_other_family(
    switch: Switch, version: int, state: str
) -> None:
    """The kernel refuses a flow that looks at both, and all packets of the tunnel would go through ovs-vswitchd."""
    said = trace(switch.ovs, from_tunnel(HERE[version], marks=switch.marks), state)
    seen = [line for line in said.splitlines() if line.startswith("Megaflow: ")]
    other = "tun_dst" if version == 6 and switch.marks else "tun_ipv6_dst"
    assert (bool(seen), [line for line in seen if other in line]) == (True, [])


@VERSIONS
def test_one_meter_limits_what_leaves_with_an_egress_ip_of_this_node_whichever_node_it_comes_from(
    switch: Switch, version: int
) -> None:
    once = 1 if switch.limit else 0
    assert switch.metered(from_pod(NEAR, OUT[version])) == once
    assert switch.metered(from_pod(NEAR, OUT[version]), "trk,est") == once
    assert switch.metered(from_tunnel(HERE[version], marks=switch.marks)) == once
    for packet in (
        from_pod(REMOTE, OUT[version]),  # its own Node limits it
        from_pod(PLAIN, OUT[version]),
        from_pod(NEAR, EXCEPTED[version]),
        from_pod(NEAR, FAR_POD[version]),
    ):
        assert switch.metered(packet) == 0
    assert switch.metered(from_pod(NEAR, OUT[version]), REPLY) == 0


@VERSIONS
def test_an_egress_with_destinations_is_for_these_alone_and_not_for_what_they_except(
    switch: Switch, version: int
) -> None:
    here, afar = SELECTIVE
    number = switch.number[version]
    marked = (number, here.mac) if switch.marks else (0, mark_mac(number))
    assert switch.traced(from_pod(here, INSIDE[version])) == Way("2", *marked, "")
    assert switch.traced(from_pod(afar, INSIDE[version])) == switch.away(THERE[version])
    for sender in SELECTIVE:
        for to in (OUTLYING, OUT, EXCEPTED, THEIRS):
            assert switch.traced(from_pod(sender, to[version])) == Way("2", 0, sender.mac, "")
        assert switch.traced(from_pod(sender, FAR_POD[version])) == Way("1", 0, GATEWAY.mac, FAR_END)
