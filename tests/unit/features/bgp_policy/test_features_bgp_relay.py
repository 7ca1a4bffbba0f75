"""Relay of connections between Nodes that advertise the same address."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antrea.apis.crd.bgp import BGPPolicy
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts, Unit
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service, ServicePort
from antrea.features.bgp_policy.policy import EffectivePolicy, PolicyNode, policy_row
from antrea.features.bgp_policy.relay import next_node, passed_on, relayed_service, ring
from antrea.host.carrier import RELAYED_MACS
from antrea.openflow.flow import Flow

VIP = "203.0.113.5"
SPEC = {
    "nodeSelector": {},
    "localASN": 64512,
    "advertisements": {"service": {"ipTypes": ["LoadBalancerIP"]}},
    "bgpPeers": [{"address": "192.0.2.9", "asn": 65001}],
}
ROW = policy_row(msgspec.convert({"metadata": {"name": "p", "uid": "p"}, "spec": SPEC}, BGPPolicy))


def effective(*nodes: tuple[str, bool]) -> EffectivePolicy:
    return EffectivePolicy(ROW, nodes=tuple(PolicyNode(*node) for node in sorted(nodes)))


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), st.data())
def test_packets_reach_every_node_of_the_ring_and_come_back_to_none(
    names: set[str], data: st.DataObject
) -> None:
    leaving = data.draw(st.sets(st.sampled_from(sorted(names))))
    row = effective(*((name, name in leaving) for name in names))
    start = data.draw(st.sampled_from(sorted(names)))
    seen, at = [start], start
    for _ in RELAYED_MACS:
        at = next_node(row, at)
        if not at or at in seen:
            break
        seen.append(at)
    if start in ring(row):
        assert set(seen) == set(ring(row))
    else:
        assert seen[1:] == ring(row)[: len(RELAYED_MACS)]
    # Nodes that are drained are reached first, as routers send them nothing any more
    assert set(ring(row)) >= set(sorted(leaving)[: len(RELAYED_MACS) + 1])


def test_a_node_alone_relays_nothing() -> None:
    assert next_node(effective(("a", False)), "a") == ""
    assert next_node(effective(), "a") == ""


def test_packets_of_unknown_connections_go_to_the_next_node_and_are_counted() -> None:
    facts = Facts()
    engine = Engine(facts, (Unit(Service, relayed_service), Unit(EffectivePolicy, passed_on)))
    port = ServicePort("shop/web", "", "TCP", 80, ("10.96.0.7",), external_ips=(VIP,))
    rows: list[Any] = [
        AgentConfig(antrea_proxy=AntreaProxy(proxy_all=True)),
        ThisNode("n1", (), ("192.0.2.1",), ("192.0.2.1",)),
        OvsPort("antrea-tun0", "tunnel", 2, ""),
        OvsPort("antrea-gw0", "gateway", 1, "0a:00:00:00:00:02"),
        PeerNode("n2", ("10.10.2.0/24",), ("192.0.2.2",), ("192.0.2.2",)),
        Service("shop", "web", ("10.96.0.7", VIP), (("TCP", 80),), (VIP,), load_balancer_ips=(VIP,)),
        port,
        effective(("n1", False), ("n2", True)),
    ]
    for row in rows:
        facts.put(row)

    def found() -> list[Flow]:
        engine.plan()
        assert not engine.errors.standing
        return [entry for entry in engine.standing().values() if isinstance(entry, Flow)]

    outside = [flow for flow in found() if f"nw_dst={VIP}" in flow.match]
    # one lets relayed packets in, three pass on packets that are not the first of a connection
    assert len(outside) == 4
    assert {"set_field:192.0.2.2->tun_dst"} <= {text for flow in outside for text in flow.actions}
    assert len([flow for flow in found() if "dl_src=02:ea:00:00:00:02" in flow.match]) == 6
    assert not [flow for flow in found() if "dl_src=02:ea:00:00:00:03" in flow.match]
    # Endpoints that answer clients directly have no connection that a Node tracks
    facts.put(msgspec.structs.replace(port, direct=True))
    assert not [flow for flow in found() if f"nw_dst={VIP}" in flow.match]
    facts.put(port)
    facts.put(effective(("n1", False)))
    assert found() == []
