"""Direct server return in a real switch, by trace: the Node that a packet enters by, and the Node of the Endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import PEER, TUNNEL, ports
from proxy_switch import (
    BALANCED,
    DIRECT,
    EXTERNAL,
    GATEWAYS,
    HOST,
    NODE_PORT,
    OUTSIDE,
    OWN,
    POD,
    REMOTE,
    VIRTUAL,
    WEB,
    Verdict,
    endpoint,
    install,
    six,
    trace,
    verdict,
)

from antrea.features.proxy.dsr import DIRECT_IPS

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

AS_IT_IS = Verdict("", "", TUNNEL.ofport)
DROPPED = Verdict()


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


def translated(six: bool) -> Verdict:
    """As without direct server return."""
    return Verdict(REMOTE[six], GATEWAYS[six], TUNNEL.ofport)


@six
def test_a_packet_to_an_endpoint_on_another_node_leaves_as_it_came(bridge: OvsBridge, six: bool) -> None:
    install(bridge, DIRECT, endpoint(REMOTE[six], "n2"), dsr=True)
    for ip in (BALANCED[six], EXTERNAL[six]):
        assert trace(bridge, OUTSIDE[six], ip) == AS_IT_IS
    text = bridge.ofctl("dump-flows", "--no-stats")
    assert f"set_field:{PEER.transport_ips[0]}->tun_dst" in text


@six
def test_a_packet_to_a_node_port_leaves_with_the_address_that_was_asked(bridge: OvsBridge, six: bool) -> None:
    """The host hands it over with the virtual address of such NodePorts."""
    install(bridge, DIRECT, endpoint(REMOTE[six], "n2"), dsr=True)
    assert trace(bridge, OUTSIDE[six], DIRECT_IPS[six], NODE_PORT, learns=True) == AS_IT_IS
    assert trace(bridge, OUTSIDE[six], DIRECT_IPS[six], NODE_PORT, state="inv") == AS_IT_IS
    (own,) = [line for line in bridge.dump() if f"set_field:{OWN[six]}->" in line]
    assert f"dst={DIRECT_IPS[six]}" in own
    assert f"set_field:{PEER.transport_ips[0]}->tun_dst" in own
    install(bridge, DIRECT, endpoint(POD.ips[six]), dsr=True)
    assert trace(bridge, OUTSIDE[six], DIRECT_IPS[six], NODE_PORT) == Verdict(POD.ips[six], "", POD.ofport)


@six
def test_the_node_of_the_endpoint_takes_what_another_node_got_for_a_node_port(
    bridge: OvsBridge, six: bool
) -> None:
    ends = f"in_port={TUNNEL.ofport},dl_src=0a:00:00:00:00:99,dl_dst=aa:bb:cc:dd:ee:ff"
    rows = (endpoint(REMOTE[six], "n2"), endpoint(POD.ips[six]))
    install(bridge, DIRECT, *rows, dsr=True)
    assert verdict(bridge, ends, OUTSIDE[six], HOST[six], NODE_PORT) == Verdict(POD.ips[six], "", POD.ofport)
    assert verdict(bridge, ends, OUTSIDE[six], HOST[six], 80).to == ""
    assert verdict(bridge, ends, REMOTE[six], HOST[six], NODE_PORT).to == ""
    install(bridge, DIRECT, rows[0], dsr=True)
    assert verdict(bridge, ends, OUTSIDE[six], HOST[six], NODE_PORT).rejected


@six
def test_node_ports_that_the_host_translated_and_what_is_of_the_cluster_are_translated(
    bridge: OvsBridge, six: bool
) -> None:
    install(bridge, DIRECT, endpoint(REMOTE[six], "n2"), dsr=True)
    assert trace(bridge, OUTSIDE[six], VIRTUAL[six], NODE_PORT) == translated(six)
    for source in (POD.ips[six], GATEWAYS[six]):
        found = trace(bridge, source, BALANCED[six])
        assert (found.to, found.port) == (REMOTE[six], TUNNEL.ofport)


@six
def test_an_endpoint_on_the_node_itself_gets_its_packets_translated(bridge: OvsBridge, six: bool) -> None:
    install(bridge, DIRECT, endpoint(POD.ips[six]), dsr=True)
    assert trace(bridge, OUTSIDE[six], BALANCED[six]) == Verdict(POD.ips[six], "", POD.ofport)


@six
def test_what_follows_goes_where_the_first_packet_went_though_it_cannot_be_tracked(
    bridge: OvsBridge, six: bool
) -> None:
    rows = (endpoint(REMOTE[six], "n2"), endpoint(POD.ips[six]))
    install(bridge, DIRECT, rows[0], dsr=True)
    assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True) == AS_IT_IS
    learned = [line for line in bridge.dump() if " idle_timeout=160" in line]
    assert len(learned) == 1
    assert "fin_timeout(idle_timeout=5)" in learned[0]
    install(bridge, DIRECT, rows[1], dsr=True)
    bridge.add_flows(learned)
    for state in ("inv", "est"):
        assert trace(bridge, OUTSIDE[six], BALANCED[six], state=state) == AS_IT_IS


@six
def test_packets_that_cannot_be_tracked_and_are_of_no_such_service_are_dropped(
    bridge: OvsBridge, six: bool
) -> None:
    install(bridge, DIRECT, endpoint(REMOTE[six], "n2"), dsr=True)
    for ip, port in [(VIRTUAL[six], NODE_PORT), (POD.ips[six], 80), (BALANCED[six], 81)]:
        assert trace(bridge, OUTSIDE[six], ip, port, state="inv") == DROPPED
    assert trace(bridge, POD.ips[six], BALANCED[six], state="inv") == DROPPED


@six
def test_the_node_of_the_endpoint_chooses_one_of_its_own(bridge: OvsBridge, six: bool) -> None:
    install(bridge, DIRECT, endpoint(REMOTE[six], "n2"), endpoint(POD.ips[six]), dsr=True)
    ends = f"in_port={TUNNEL.ofport},dl_src=0a:00:00:00:00:99,dl_dst=aa:bb:cc:dd:ee:ff"
    found = verdict(bridge, ends, OUTSIDE[six], BALANCED[six], 80)
    assert found == Verdict(POD.ips[six], "", POD.ofport)


@six
def test_source_ranges_hold_for_the_first_packet_and_for_what_was_learned(
    bridge: OvsBridge, six: bool
) -> None:
    near, far = ("2001:db8:7::/48", "2001:db8:9::/48") if six else ("203.0.113.0/24", "203.0.115.0/24")
    row = endpoint(REMOTE[six], "n2")
    install(bridge, msgspec.structs.replace(DIRECT, source_ranges=(near,)), row, dsr=True)
    assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True) == AS_IT_IS
    assert trace(bridge, OUTSIDE[six], BALANCED[six], state="inv") == AS_IT_IS
    learned = [line for line in bridge.dump() if " idle_timeout=160" in line]
    install(bridge, msgspec.structs.replace(DIRECT, source_ranges=(far,)), row, dsr=True)
    bridge.add_flows(learned)
    assert trace(bridge, OUTSIDE[six], BALANCED[six], state="inv") == DROPPED


@six
@pytest.mark.parametrize(("mode", "gate"), [("", True), ("nat", True), ("dsr", False)])
def test_without_the_mode_or_the_gate_packets_are_translated(
    bridge: OvsBridge, six: bool, mode: str, gate: bool
) -> None:
    service = msgspec.structs.replace(WEB, mode=mode)
    install(bridge, service, endpoint(REMOTE[six], "n2"), dsr=gate)
    assert trace(bridge, OUTSIDE[six], BALANCED[six]) == translated(six)
