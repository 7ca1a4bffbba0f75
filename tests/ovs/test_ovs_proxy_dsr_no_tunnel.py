"""Direct server return without tunnels, in a real switch: packets go back to the host, for another Node, and come from one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import GATEWAY, ports
from proxy_switch import (
    BALANCED,
    DIRECT,
    EXTERNAL,
    HAIRPIN,
    HOST,
    NEIGHBOURS,
    NODE_PORT,
    OUTSIDE,
    OWN,
    POD,
    REMOTE,
    Verdict,
    endpoint,
    install,
    six,
    trace,
    verdict,
)

from antrea.features.proxy.direct_path import PASSED_MAC
from antrea.features.proxy.dsr import DIRECT_IPS

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.engine import Facts
    from antrea.facts.fact import Fact

AS_IT_IS = Verdict("", "", GATEWAY.ofport)
PASSED = f"in_port={GATEWAY.ofport},dl_src={GATEWAY.mac},dl_dst={PASSED_MAC}"
"""By the host from another Node."""
HOP = "02:eb:00:00:00:01"
"""Of n2, for the host."""


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


def installed(bridge: OvsBridge, *rows: Fact) -> Facts:
    return install(bridge, *rows, dsr=True, tunnels=False)


def source_mac(bridge: OvsBridge, to: str, port: int) -> str:
    """By which the host knows where to send a packet from outside, that goes back to it."""
    kind, name = ("tcp6", "ipv6") if ":" in to else ("tcp", "nw")
    source = OUTSIDE[":" in to]
    packet = (
        f"in_port={GATEWAY.ofport},dl_src={GATEWAY.mac},dl_dst=aa:bb:cc:dd:ee:ff,{kind},{name}_src={source},"
        f"{name}_dst={to},nw_ttl=64,tcp_src=40000,tcp_dst={port},dp_hash=1"
    )
    states = ["--ct-next", "trk,new"] * 4
    text = bridge.appctl("ofproto/trace", "br-int", packet, *states)
    field = "ipv6_dst" if ":" in to else "ip_dst"
    assert re.findall(rf"set_field:(\S+)->{field}", text) == ([OWN[":" in to]] if to in DIRECT_IPS else [])
    return str(re.findall(r"set_field:(\S+)->eth_src", text)[-1])


@six
def test_a_packet_to_an_endpoint_on_another_node_goes_back_as_it_came(bridge: OvsBridge, six: bool) -> None:
    installed(bridge, DIRECT, endpoint(REMOTE[six], "n2"))
    for ip, port in ((BALANCED[six], 80), (EXTERNAL[six], 80), (DIRECT_IPS[six], NODE_PORT)):
        assert trace(bridge, OUTSIDE[six], ip, port) == AS_IT_IS
        assert source_mac(bridge, ip, port) == HOP
        assert trace(bridge, OUTSIDE[six], ip, port, learns=True) == AS_IT_IS
        for state in ("inv", "est"):
            assert trace(bridge, OUTSIDE[six], ip, port, state=state) == AS_IT_IS


@six
def test_the_node_of_the_endpoint_chooses_one_of_its_own_and_passes_nothing_on(
    bridge: OvsBridge, six: bool
) -> None:
    """Even where it passed on this very connection before, or the client has its affinity elsewhere."""
    here, there = endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2")
    asked = [(BALANCED[six], 80), (HOST[six], NODE_PORT)]
    for service in (DIRECT, msgspec.structs.replace(DIRECT, affinity_seconds=100)):
        installed(bridge, service, there)
        assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True) == AS_IT_IS
        learned = [line for line in bridge.dump() if "_timeout=" in line and "learn(" not in line]
        assert learned
        installed(bridge, service, here, there)
        bridge.add_flows(learned)
        for ip, port in asked:
            found = verdict(bridge, PASSED, OUTSIDE[six], ip, port)
            assert found == Verdict(POD.ips[six], "", POD.ofport)
    installed(bridge, DIRECT, there)
    assert all(verdict(bridge, PASSED, OUTSIDE[six], ip, port).rejected for ip, port in asked)


@six
def test_what_nodes_and_pods_of_the_cluster_ask_is_translated(bridge: OvsBridge, six: bool) -> None:
    """A host takes no packet from outside with an address of its own as its source."""
    installed(bridge, DIRECT, endpoint(REMOTE[six], "n2"))
    for source in (HOST[six], ("10.10.1.13", "fd00:10:1::d")[six]):
        found = trace(bridge, source, DIRECT_IPS[six], NODE_PORT)
        assert found == Verdict(REMOTE[six], HAIRPIN[six], GATEWAY.ofport)
        assert trace(bridge, source, DIRECT_IPS[six], NODE_PORT, state="inv") == Verdict()


@six
@pytest.mark.parametrize("which", ["behind a router", "of an older agent"])
def test_endpoints_to_which_nothing_gets_as_it_came_get_translated_packets(
    bridge: OvsBridge, six: bool, which: str
) -> None:
    other = NEIGHBOURS[1]
    far = msgspec.structs.replace(other, transport_ips=("198.18.0.2", "2001:db8:18::2"))
    peer = far if which == "behind a router" else msgspec.structs.replace(other, mac="")
    installed(bridge, DIRECT, endpoint(REMOTE[six], "n2"), peer)
    for ip, port in ((BALANCED[six], 80), (DIRECT_IPS[six], NODE_PORT)):
        found = trace(bridge, OUTSIDE[six], ip, port)
        assert found == Verdict(REMOTE[six], HAIRPIN[six], GATEWAY.ofport)
