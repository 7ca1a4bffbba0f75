"""proxyAll in a real switch, by trace: NodePorts, external addresses and the Node itself, in both families."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import GATEWAY, TUNNEL, ports
from proxy_switch import (
    BALANCED,
    CLUSTER,
    EXTERNAL,
    GATEWAYS,
    HAIRPIN,
    HOST,
    LOCAL,
    NODE_PORT,
    OUTSIDE,
    OWN,
    POD,
    REMOTE,
    STICKY,
    WEB,
    Verdict,
    asked,
    endpoint,
    install,
    six,
    trace,
)

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.facts.service import Service


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


@six
def test_a_host_outside_reaches_an_endpoint_on_this_node_with_its_own_address(
    bridge: OvsBridge, six: bool
) -> None:
    install(bridge, WEB, endpoint(POD.ips[six]))
    for ip, port in asked(six):
        assert trace(bridge, OUTSIDE[six], ip, port) == Verdict(POD.ips[six], "", POD.ofport)


@six
def test_a_host_outside_reaches_an_endpoint_on_another_node_with_the_gateways_address(
    bridge: OvsBridge, six: bool
) -> None:
    install(bridge, WEB, endpoint(REMOTE[six], "n2"))
    for ip, port in asked(six):
        assert trace(bridge, OUTSIDE[six], ip, port) == Verdict(REMOTE[six], GATEWAYS[six], TUNNEL.ofport)


@six
def test_a_host_outside_with_a_route_to_cluster_ips_reaches_endpoints_as_by_an_external_ip(
    bridge: OvsBridge, six: bool
) -> None:
    """As kube-proxy masquerades what does not come from Pods."""
    install(bridge, WEB, endpoint(POD.ips[six]))
    assert trace(bridge, OUTSIDE[six], CLUSTER[six]) == Verdict(POD.ips[six], "", POD.ofport)
    install(bridge, WEB, endpoint(REMOTE[six], "n2"))
    assert trace(bridge, OUTSIDE[six], CLUSTER[six]) == Verdict(REMOTE[six], GATEWAYS[six], TUNNEL.ofport)
    # what is for a Pod elsewhere by its own address keeps its source
    assert trace(bridge, OUTSIDE[six], REMOTE[six]) == Verdict("", "", TUNNEL.ofport)


@six
def test_an_endpoint_on_the_network_of_a_node_is_reached_through_the_host(
    bridge: OvsBridge, six: bool
) -> None:
    install(bridge, WEB, endpoint(HOST[six], "n2"))
    for ip, port in asked(six):
        assert trace(bridge, OUTSIDE[six], ip, port) == Verdict(HOST[six], HAIRPIN[six], GATEWAY.ofport)
    assert trace(bridge, GATEWAYS[six], CLUSTER[six]) == Verdict(HOST[six], HAIRPIN[six], GATEWAY.ofport)


@six
def test_the_node_reaches_a_cluster_ip_with_the_gateways_address(bridge: OvsBridge, six: bool) -> None:
    install(bridge, WEB, endpoint(POD.ips[six]))
    assert trace(bridge, GATEWAYS[six], CLUSTER[six]) == Verdict(POD.ips[six], "", POD.ofport)
    install(bridge, WEB, endpoint(REMOTE[six], "n2"))
    assert trace(bridge, GATEWAYS[six], CLUSTER[six]) == Verdict(REMOTE[six], "", TUNNEL.ofport)


@six
def test_a_pod_asks_for_a_node_port_at_an_address_of_its_node(bridge: OvsBridge, six: bool) -> None:
    install(bridge, WEB, endpoint(REMOTE[six], "n2"))
    assert trace(bridge, POD.ips[six], OWN[six], NODE_PORT) == Verdict(REMOTE[six], "", TUNNEL.ofport)
    assert trace(bridge, POD.ips[six], HOST[six], NODE_PORT) == Verdict("", "", GATEWAY.ofport)


@six
def test_with_policy_local_packets_from_outside_are_dropped_where_no_endpoint_is(
    bridge: OvsBridge, six: bool
) -> None:
    """A load balancer sends them to another Node; Pods and the Node itself may go to any Endpoint."""
    install(bridge, LOCAL, endpoint(REMOTE[six], "n2"))
    for ip, port in asked(six):
        assert trace(bridge, OUTSIDE[six], ip, port) == Verdict()
        for source in (POD.ips[six], GATEWAYS[six]):
            found = trace(bridge, source, ip, port)
            assert (found.to, found.port) == (REMOTE[six], TUNNEL.ofport)


@six
def test_with_policy_local_packets_from_outside_stay_on_this_node(bridge: OvsBridge, six: bool) -> None:
    install(bridge, LOCAL, endpoint(REMOTE[six], "n2"), endpoint(POD.ips[six]))
    for ip, port in asked(six):
        assert trace(bridge, OUTSIDE[six], ip, port) == Verdict(POD.ips[six], "", POD.ofport)


@six
@pytest.mark.parametrize("service", [WEB, LOCAL], ids=["Cluster", "Local"])
def test_without_any_endpoint_packets_from_outside_are_rejected(
    bridge: OvsBridge, six: bool, service: Service
) -> None:
    install(bridge, service)
    for ip, port in asked(six):
        assert trace(bridge, OUTSIDE[six], ip, port) == Verdict(rejected=True)


@six
def test_whoever_asks_a_port_that_no_service_has_at_an_address_of_one_is_rejected(
    bridge: OvsBridge, six: bool
) -> None:
    """The host sends there what Pods ask for, too."""
    install(bridge, WEB, endpoint(POD.ips[six]))
    assert trace(bridge, POD.ips[six], CLUSTER[six], 81) == Verdict(port=GATEWAY.ofport)
    for source in (OUTSIDE[six], GATEWAYS[six]):
        for protocol in ("tcp", "udp"):
            assert trace(bridge, source, CLUSTER[six], 81, protocol=protocol) == Verdict(rejected=True)


@six
def test_session_affinity_keeps_how_the_service_was_asked(bridge: OvsBridge, six: bool) -> None:
    """The source of a connection that follows the learned choice is translated, too."""
    for ip, port in asked(six):
        install(bridge, STICKY, endpoint(REMOTE[six], "n2"))
        first = trace(bridge, OUTSIDE[six], ip, port, learns=True)
        assert sum(" hard_timeout=100" in line for line in bridge.dump()) == 1
        again = trace(bridge, OUTSIDE[six], ip, port)
        assert first == again == Verdict(REMOTE[six], GATEWAYS[six], TUNNEL.ofport)


@six
@pytest.mark.parametrize("service", [WEB, STICKY, LOCAL], ids=["plain", "affinity", "Local"])
def test_source_ranges_guard_load_balancer_addresses_alone(
    bridge: OvsBridge, six: bool, service: Service
) -> None:
    near = "2001:db8:7::/48" if six else "203.0.113.0/24"
    guarded = msgspec.structs.replace(service, source_ranges=(near,))
    install(bridge, guarded, endpoint(POD.ips[six]))
    stranger = "2001:db8:8::1" if six else "203.0.114.1"
    here = Verdict(POD.ips[six], "", POD.ofport)
    for ip, port in asked(six):
        assert trace(bridge, OUTSIDE[six], ip, port, learns=True) == here
        assert trace(bridge, OUTSIDE[six], ip, port) == here
        assert trace(bridge, stranger, ip, port) == (Verdict() if ip == BALANCED[six] else here)
    assert trace(bridge, GATEWAYS[six], BALANCED[six]) == Verdict()
    assert trace(bridge, GATEWAYS[six], CLUSTER[six]) == here


@six
def test_a_choice_learned_before_does_not_let_a_client_in_that_the_ranges_leave_out(
    bridge: OvsBridge, six: bool
) -> None:
    near = "2001:db8:7::/48" if six else "203.0.113.0/24"
    far = "2001:db8:9::/48" if six else "203.0.115.0/24"
    install(bridge, msgspec.structs.replace(STICKY, source_ranges=(near,)), endpoint(POD.ips[six]))
    assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True).port == POD.ofport
    learned = [line for line in bridge.dump() if " hard_timeout=100" in line]
    assert len(learned) == 1
    install(bridge, msgspec.structs.replace(STICKY, source_ranges=(far,)), endpoint(POD.ips[six]))
    bridge.add_flows(learned)
    assert trace(bridge, OUTSIDE[six], BALANCED[six]) == Verdict()


@six
@pytest.mark.parametrize("ranges", [("",), ("", "0.0.0.0/0", "::/0")], ids=["alone", "beside all"])
def test_a_source_range_that_cannot_be_read_opens_nothing(
    bridge: OvsBridge, six: bool, ranges: tuple[str, ...]
) -> None:
    install(bridge, msgspec.structs.replace(WEB, source_ranges=ranges), endpoint(POD.ips[six]))
    opened = trace(bridge, OUTSIDE[six], BALANCED[six])
    assert opened == (Verdict(POD.ips[six], "", POD.ofport) if len(ranges) > 1 else Verdict())


@six
@pytest.mark.parametrize("let_in", [True, False])
def test_ranges_that_have_an_address_of_the_node_let_the_node_in(
    bridge: OvsBridge, six: bool, let_in: bool
) -> None:
    own, other = ("2001:db8:2::/48", "2001:db8:3::/48") if six else ("192.0.2.0/24", "192.0.3.0/24")
    ranges = (own if let_in else other,)
    install(bridge, msgspec.structs.replace(WEB, source_ranges=ranges), endpoint(POD.ips[six]))
    opened = Verdict(POD.ips[six], "", POD.ofport)
    assert trace(bridge, GATEWAYS[six], BALANCED[six]) == (opened if let_in else Verdict())


@six
def test_of_two_services_with_one_address_the_older_has_it(bridge: OvsBridge, six: bool) -> None:
    late = msgspec.structs.replace(
        WEB,
        name="late",
        ips=("10.96.0.11", "fd00:96::b", *EXTERNAL),
        external_ips=EXTERNAL,
        node_ports=(0,),
        created="2026-02-01T00:00:00Z",
    )
    rows = (endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2", "a/late"))
    install(bridge, WEB, late, *rows)
    assert trace(bridge, OUTSIDE[six], EXTERNAL[six]) == Verdict(POD.ips[six], "", POD.ofport)
