"""Choices of direct server return that do not hold any more, in a real switch: of an Endpoint that is gone, or by another Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import TUNNEL
from proxy_switch import (
    BALANCED,
    DIRECT,
    HOST,
    NODE_PORT,
    OUTSIDE,
    POD,
    REMOTE,
    WEB,
    Verdict,
    endpoint,
    install,
    learned,
    six,
    trace,
    verdict,
)

from antrea.apis import controlplane as cp
from antrea.features.network_policy.agent.received import SentAppliedMember
from antrea.features.proxy.dsr import DIRECT_IPS
from tests.unit.features.policy_world import block, native, peer, port, rule

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

STICKY = msgspec.structs.replace(DIRECT, affinity_seconds=100)
SYSLOG = msgspec.structs.replace(DIRECT, ports=(("UDP", 80),))
AS_IT_IS = Verdict("", "", TUNNEL.ofport)
TUNNELLED = f"in_port={TUNNEL.ofport},dl_src=0a:00:00:00:00:99,dl_dst=aa:bb:cc:dd:ee:ff"


@six
def test_a_udp_client_that_goes_on_gets_another_endpoint_when_its_own_is_gone(
    bridge: OvsBridge, six: bool
) -> None:
    gone, other, here = (
        msgspec.structs.replace(row, protocol="UDP")
        for row in (endpoint(REMOTE[six], "n2"), endpoint(HOST[six], "n2"), endpoint(POD.ips[six]))
    )
    second = msgspec.structs.replace(
        gone, ip=REMOTE[six].removesuffix("c").removesuffix("12") + ("d" if six else "13")
    )
    install(bridge, SYSLOG, gone, dsr=True)
    asked = (OUTSIDE[six], BALANCED[six])
    assert trace(bridge, *asked, learns=True, protocol="udp") == AS_IT_IS
    kept = learned(bridge)
    assert len(kept) == 1
    install(bridge, SYSLOG, gone, here, dsr=True)
    bridge.add_flows(kept)
    for state in ("new", "est"):
        assert trace(bridge, *asked, state=state, protocol="udp") == AS_IT_IS
    install(bridge, SYSLOG, here, dsr=True)
    bridge.add_flows(kept)
    for state in ("new", "est"):
        found = trace(bridge, *asked, state=state, protocol="udp")
        assert found == Verdict(POD.ips[six], "", POD.ofport)
    install(bridge, SYSLOG, second, dsr=True)
    bridge.add_flows(kept)
    assert trace(bridge, *asked, learns=True, protocol="udp") == AS_IT_IS
    (anew,) = learned(bridge)
    assert anew != kept[0]
    install(bridge, SYSLOG, dsr=True)
    bridge.add_flows(kept)
    assert trace(bridge, *asked, protocol="udp").rejected
    # an Endpoint of another Service alone
    elsewhere = msgspec.structs.replace(gone, slice="a/other", service="a/other")
    also = msgspec.structs.replace(
        WEB,
        name="other",
        ips=("10.96.0.99", "fd00:96::99"),
        external_ips=(),
        load_balancer_ips=(),
        ports=(("UDP", 80),),
        node_ports=(0,),
    )
    install(bridge, SYSLOG, also, elsewhere, here, dsr=True)
    bridge.add_flows(kept)
    assert trace(bridge, *asked, protocol="udp") == Verdict(POD.ips[six], "", POD.ofport)
    assert other.ip


@six
def test_a_tcp_connection_goes_on_to_an_endpoint_that_gets_no_new_ones(bridge: OvsBridge, six: bool) -> None:
    """Its Node translates what stands; it resets what does not."""
    install(bridge, DIRECT, endpoint(REMOTE[six], "n2"), dsr=True)
    assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True) == AS_IT_IS
    kept = learned(bridge)
    install(bridge, DIRECT, endpoint(POD.ips[six]), dsr=True)
    bridge.add_flows(kept)
    for state in ("inv", "est"):
        assert trace(bridge, OUTSIDE[six], BALANCED[six], state=state) == AS_IT_IS


@six
@pytest.mark.parametrize("service", [DIRECT, STICKY], ids=["connection", "affinity"])
def test_what_another_node_passed_on_gets_an_endpoint_here_whatever_was_chosen_before(
    bridge: OvsBridge, six: bool, service: object
) -> None:
    """Its client came to this Node before, which chose an Endpoint elsewhere: back through the tunnel no packet would go."""
    rows = (service, endpoint(REMOTE[six], "n2"))
    install(bridge, *rows, dsr=True)  # type: ignore[arg-type]
    assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True) == AS_IT_IS
    kept = learned(bridge)
    assert kept
    install(bridge, *rows, endpoint(POD.ips[six]), dsr=True)  # type: ignore[arg-type]
    bridge.add_flows(kept)
    assert trace(bridge, OUTSIDE[six], BALANCED[six]) == AS_IT_IS
    for ip, number in ((BALANCED[six], 80), (HOST[six], NODE_PORT)):
        found = verdict(bridge, TUNNELLED, OUTSIDE[six], ip, number)
        assert found == Verdict(POD.ips[six], "", POD.ofport)


@six
def test_a_client_whose_endpoint_elsewhere_is_gone_gets_one_here(bridge: OvsBridge, six: bool) -> None:
    """By affinity: the next choice is not taken for one of another Node."""
    install(bridge, STICKY, endpoint(REMOTE[six], "n2"), dsr=True)
    assert trace(bridge, OUTSIDE[six], BALANCED[six], learns=True) == AS_IT_IS
    affinity = [line for line in learned(bridge) if "hard_timeout=" in line]
    assert affinity
    install(bridge, STICKY, endpoint(POD.ips[six]), dsr=True)
    bridge.add_flows(affinity)
    assert trace(bridge, OUTSIDE[six], BALANCED[six]) == Verdict(POD.ips[six], "", POD.ofport)


@six
def test_an_endpoint_that_is_no_pod_of_its_node_is_reached_by_translation(
    bridge: OvsBridge, six: bool
) -> None:
    """As a tenant's EndpointSlice may have it: no Pod CIDR says where the packet would have to go."""
    somewhere = ("203.0.113.99", "2001:db8:cb::63")[six]
    install(bridge, DIRECT, endpoint(somewhere, "n2"), dsr=True)
    assert trace(bridge, OUTSIDE[six], BALANCED[six]).to == somewhere


@six
@pytest.mark.parametrize(("number", "dropped"), [(8080, True), (NODE_PORT, False)])
def test_policies_for_the_service_judge_its_node_port_where_the_endpoint_is(
    bridge: OvsBridge, six: bool, number: int, dropped: bool
) -> None:
    """By its port, which the Node that was asked does not see: there the packet has that of the NodePort."""
    everybody = peer(blocks=(block("0.0.0.0/0"), block("::/0")))
    member = cp.GroupMember(service=cp.ServiceReference(name="web", namespace="a"))
    rows = (
        SentAppliedMember("svc", member),
        native("p", "svc", rule("In", everybody, port(number), action="Drop", name="deny")),
    )
    install(bridge, DIRECT, endpoint(REMOTE[six], "n2"), *rows, dsr=True)
    assert trace(bridge, OUTSIDE[six], DIRECT_IPS[six], NODE_PORT) == AS_IT_IS
    install(bridge, DIRECT, endpoint(POD.ips[six]), *rows, dsr=True)
    for found in (
        verdict(bridge, TUNNELLED, OUTSIDE[six], HOST[six], NODE_PORT),
        trace(bridge, OUTSIDE[six], DIRECT_IPS[six], NODE_PORT),
    ):
        assert (found.to, found.port) == (POD.ips[six], 0 if dropped else POD.ofport)
