"""BGPPolicy in the agent: which policy a Node follows, its sessions, and what it advertises."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from antrea.apis.annotation import BGP_ROUTER_ID, NodeAnnotation
from antrea.apis.core import Node
from antrea.apis.crd.bgp import BGPPolicy
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.egress import Egress
from antrea.facts.member import AgentLeaving, AgentNode, GossipMember
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.router import RouterSession
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.bgp_policy.agent import EGRESS, FEATURE
from antrea.features.bgp_policy.password import (
    SECRET,
    PasswordSecret,
    PeerPassword,
    password_fault,
    password_rows,
)
from antrea.features.bgp_policy.policy import EffectivePolicy, PolicyNode, policy_row
from antrea.features.bgp_policy.report import (
    bfd_peers_down,
    bgp_peers_down,
    duplicate_router_id,
    unusable_peers,
)
from antrea.features.bgp_policy.router_id import (
    NodeRouterId,
    hashed_router_id,
    node_router_id,
    valid_router_id,
)
from antrea.features.bgp_policy.session import UnusablePeer
from antrea.features.bgp_policy.state import BfdPeerState, BgpPeerState, bfd_states, bgp_states
from antrea.features.bgp_policy.view import NoPolicy, shown_peers, shown_policy, shown_routes
from antrea.host.bgp import BfdOnlySession, BfdTimers, BgpNeighbor, BgpPrefix, BgpSpeaker, Password

IPS = ("192.0.2.1", "2001:db8::1")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), IPS, IPS)
PEER = {"address": "192.0.2.9", "asn": 65001}


def stored(name: str = "p", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> BGPPolicy:
    whole = {"nodeSelector": {}, "localASN": 64512, **spec}
    found = {"metadata": {"name": name, "uid": name, "creationTimestamp": created}, "spec": whole}
    return msgspec.convert(found, BGPPolicy)


def node(name: str = "n1", **more: Any) -> AgentNode:
    return AgentNode(name, IPS, IPS, pod_cidrs=NODE.pod_cidrs, **more)


class World:
    """The units of one Node."""

    def __init__(self, *policies: BGPPolicy) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, (*FEATURE.units, *EGRESS.units))
        for row in (NODE, node(), *map(policy_row, policies)):
            self.facts.put(row)
        self.entries: dict[tuple[type, object], Any] = {}
        self.plan()

    def put(self, *rows: Any) -> World:
        for row in rows:
            self.facts.put(row)
        return self.plan()

    def plan(self) -> World:
        plan = self.engine.plan()
        for entry in plan.drop:
            self.entries.pop((type(entry), entry.key), None)
        for entry in plan.put:
            self.entries[type(entry), entry.key] = entry
        assert not self.engine.errors.standing
        return self

    def of(self, kind: type) -> list[Any]:
        return [entry for (found, _), entry in sorted(self.entries.items(), key=str) if found is kind]

    @property
    def prefixes(self) -> list[str]:
        return [entry.prefix for entry in self.of(BgpPrefix)]


def test_the_oldest_policy_that_selects_the_node_is_followed() -> None:
    other = {"matchLabels": {"bgp": "other"}}
    world = World(
        stored("c", "2026-01-01T00:00:00Z", nodeSelector=other),
        stored("b", "2026-01-02T00:00:00Z", localASN=64999),
        stored("a", "2026-01-02T00:00:00Z"),
        stored("d", "2026-01-03T00:00:00Z"),
    )
    effective = world.facts.get(EffectivePolicy)
    assert effective
    assert (effective.policy.name, effective.shadowed) == ("a", ("b", "d"))
    world.put(node(labels=(("bgp", "other"),)))
    effective = world.facts.get(EffectivePolicy)
    assert effective
    assert effective.policy.name == "c"


def test_without_a_policy_there_is_nothing() -> None:
    world = World()
    assert world.entries == {}
    with pytest.raises(NoPolicy, match="there is no effective bgp policy applied to the Node"):
        shown_policy(world.facts)


@pytest.mark.parametrize(
    ("rows", "drains"),
    [
        ((node(), node("n2")), False),
        ((node(cordoned=True),), False),
        ((node(cordoned=True), node("n2")), True),
        ((node(being_removed=True), node("n2")), True),
        ((node(cordoned=True), node("n2", cordoned=True)), False),
        ((node(cordoned=True), node("n2"), GossipMember("n2", alive=False)), False),
    ],
)
def test_a_node_is_drained_while_another_one_is_left(rows: tuple[Any, ...], drains: bool) -> None:
    effective = World(stored()).put(*rows).facts.get(EffectivePolicy)
    assert effective
    assert effective.is_draining is drains


def test_sessions_have_what_the_policy_says() -> None:
    bfd = {"enabled": True, "transmitIntervalMilliseconds": 100, "detectionMultiplier": 5}
    peers = [
        {**PEER, "port": 1790, "multihopTTL": 2, "gracefulRestartTimeSeconds": 60, "holdTimeSeconds": 30},
        {"address": "2001:db8:0::9", "asn": 65001, "bfd": bfd, "keepaliveIntervalSeconds": 5},
        {
            "address": "192.0.2.10",
            "asn": 65001,
            "bfd": {"enabled": True},
            "gracefulRestartEnabled": True,
            "communities": ["64512:2", "64512:1", "64512:2"],
            "localPreference": 200,
        },
    ]
    confederation = {"identifier": 65000, "memberASNs": [64514, 64513, 64513]}
    world = World(stored(bgpPeers=peers, confederation=confederation, listenPort=1179))
    assert world.of(BgpSpeaker) == [BgpSpeaker(64512, "192.0.2.1", 1179, 65000, (64513, 64514), 120, 9)]
    assert world.of(BgpNeighbor) == [
        BgpNeighbor(
            address="192.0.2.10", asn=65001, bfd=BfdTimers(), communities=((64512, 1), (64512, 2)),
            local_preference=200, category=9,
        ),
        BgpNeighbor(address="192.0.2.9", asn=65001, port=1790, ttl=2, hold=30, keepalive=10, category=9),
        BgpNeighbor(
            address="2001:db8::9", asn=65001, graceful_restart=False, keepalive=5,
            bfd=BfdTimers(100, 300, 5), category=9,
        ),
    ]  # fmt: skip
    assert shown_policy(world.facts) == {
        "name": "p", "routerID": "192.0.2.1", "localASN": 64512, "listenPort": 1179,
        "confederationIdentifier": 65000, "memberASNs": [64513, 64514],
    }  # fmt: skip


def test_routers_that_watch_by_bfd_alone_need_no_speaker() -> None:
    peers = [{"address": "192.0.2.9"}, {"address": "198.51.100.1", "multihopTTL": 3}]
    world = World(stored(bfdPeers=peers))
    assert world.of(BgpSpeaker) == []
    assert world.of(BfdOnlySession) == [
        BfdOnlySession(address="192.0.2.9", category=9),
        BfdOnlySession(address="198.51.100.1", local="192.0.2.1", hops=3, category=9),
    ]
    world.put(node(cordoned=True), node("n2"))
    assert [session.shutdown for session in world.of(BfdOnlySession)] == [True, True]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"bgpPeers": [{"address": "192.0.2.1", "asn": 1}]}, "that of this Node"),
        (
            {"bgpPeers": [PEER, {**PEER, "asn": 65002}]},
            "peer 192.0.2.9-65002: another peer of the policy has its address",
        ),
        (
            {"bfdPeers": [{"address": "192.0.2.9"}, {"address": "192.0.2.9"}]},
            "another peer of the policy with BFD",
        ),
        ({"bgpPeers": [{"address": "fe80::1%eth0;x", "asn": 1}]}, "its address is invalid"),
        (
            {"bgpPeers": [{**PEER, "communities": ["1:2", "65536:1"]}]},
            "community '65536:1' is not two numbers",
        ),
        ({"bgpPeers": [{**PEER, "communities": ["1:2\nexit"]}]}, "is not two numbers"),
    ],
)
def test_a_peer_without_a_session_is_named(spec: dict[str, Any], why: str) -> None:
    world = World(stored(**spec))
    assert why in unusable_peers(world.facts)
    assert len(world.of(BgpNeighbor)) + len(world.of(BfdOnlySession)) == len(next(iter(spec.values()))) - 1


def test_sessions_with_routers_are_rows_for_others() -> None:
    peers = [
        {**PEER, "port": 1790},
        {"address": "2001:db8::9", "asn": 1, "multihopTTL": 2, "bfd": {"enabled": True}},
    ]
    world = World(
        stored(
            bgpPeers=peers, bfdPeers=[{"address": "192.0.2.9"}, {"address": "192.0.2.10"}], listenPort=1179
        )
    )
    assert world.facts.all(RouterSession) == [
        RouterSession("192.0.2.10", bfd_port=3784),
        RouterSession("192.0.2.9", 1179, 1790, 3784),
        RouterSession("2001:db8::9", 1179, 179, 4784),
    ]


def test_a_node_of_one_family_has_no_session_in_the_other() -> None:
    world = World(stored(bgpPeers=[{"address": "2001:db8::9", "asn": 1}]))
    world.put(ThisNode("n1", ("10.10.0.0/24",), IPS[:1], IPS[:1]))
    assert [row.why for row in world.facts.all(UnusablePeer)] == ["this Node has no IPv6 address"]


def secret(**data: str) -> PasswordSecret:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return msgspec.convert({"metadata": {"name": SECRET}, "data": encoded}, PasswordSecret)


def test_a_password_is_that_of_its_peer_and_one_that_cannot_be_used_ends_the_session() -> None:
    rows = password_rows(secret(**{"192.0.2.9-65001": "s3c!", "2001_db8_0__9-1": "x", "junk": "y"}))
    assert rows == (
        PeerPassword("192.0.2.9-65001", Password("s3c!")),
        PeerPassword("2001:db8::9-1", Password("x")),
    )
    world = World(stored(bgpPeers=[PEER])).put(*rows)
    assert [entry.password for entry in world.of(BgpNeighbor)] == [Password("s3c!")]
    assert "s3c!" not in repr(rows)
    world.put(*password_rows(secret(**{"192.0.2.9-65001": "a\nexit"})))
    assert world.of(BgpNeighbor) == []
    assert "its password in Secret antrea-bgp-passwords cannot be used" in unusable_peers(world.facts)
    assert password_rows(msgspec.convert({"metadata": {"name": "other"}}, PasswordSecret)) == ()


@pytest.mark.parametrize("asn", ["", "٣", "1" * 5000, "65536", "-1", "1 "])
def test_a_key_without_a_valid_as_number_is_of_no_peer(asn: str) -> None:
    assert password_rows(secret(**{f"192.0.2.9-{asn}": "x"})) == ()


@pytest.mark.parametrize("text", ["", "x" * 81, "a b", "a\nb", "a|b", "é"])
def test_a_password_that_frr_cannot_be_given_is_refused(text: str) -> None:
    assert password_fault(text)


def test_the_router_id_is_of_the_annotation_else_the_address_else_the_name() -> None:
    world = World(stored(bgpPeers=[PEER]))
    assert world.of(NodeAnnotation) == [NodeAnnotation("n1", BGP_ROUTER_ID, "192.0.2.1")]
    world.put(NodeRouterId("n1", "9.9.9.9"))
    assert [entry.router_id for entry in world.of(BgpSpeaker)] == ["9.9.9.9"]
    assert world.of(NodeAnnotation) == [NodeAnnotation("n1", BGP_ROUTER_ID, "9.9.9.9")]
    world.put(NodeRouterId("n2", "9.9.9.9"))
    assert duplicate_router_id(world.facts) == "9.9.9.9, the BGP router ID of this Node, is also that of n2"
    alone = World(stored(bgpPeers=[{"address": "2001:db8::9", "asn": 1}])).put(
        ThisNode("n1", ("fd00:10::/64",), IPS[1:], IPS[1:])
    )
    assert [entry.router_id for entry in alone.of(BgpSpeaker)] == [hashed_router_id("n1")]


@pytest.mark.parametrize("text", ["", "0.0.0.0", "fd00::1", "1.2.3", "1.2.3.4\n"])
def test_an_annotation_that_is_no_router_id_is_none(text: str) -> None:
    assert valid_router_id(text) == ""
    found = {"metadata": {"name": "n1", "annotations": {BGP_ROUTER_ID: text}}}
    assert node_router_id(msgspec.convert(found, Node)) is None


VIP, EXTERNAL = "203.0.113.5", "203.0.113.6"
ALL = {"service": {"ipTypes": ["ClusterIP", "ExternalIP", "LoadBalancerIP"]}, "pod": {}, "egress": {}}


def service(**more: Any) -> Service:
    return Service(
        "default", "web", ("10.96.0.1", EXTERNAL, VIP), (("TCP", 80), ("UDP", 53)), (EXTERNAL, VIP), ("http", "dns"),
        load_balancer_ips=(VIP,), **more,
    )  # fmt: skip


def endpoint(at: str, state: str = "ready", port: str = "http") -> ServiceEndpoint:
    return ServiceEndpoint(
        "default/web-x", "default/web", port, "TCP" if port == "http" else "UDP", f"10.10.0.{len(at)}", 80, at,
        ready=state == "ready", serving=state != "unavailable", terminating=state == "draining",
    )  # fmt: skip


def test_addresses_are_advertised_by_their_type() -> None:
    world = World(stored(bgpPeers=[PEER], advertisements=ALL)).put(service())
    assert world.prefixes == ["10.10.0.0/24", "10.96.0.1/32", f"{VIP}/32", f"{EXTERNAL}/32", "fd00:10::/64"]
    assert shown_routes(world.facts, {"type": "ServiceExternalIP"}) == [
        {"route": f"{EXTERNAL}/32", "type": "ServiceExternalIP", "k8sObjRef": "default/web"}
    ]
    assert [row["route"] for row in shown_routes(world.facts)] == [
        "10.10.0.0/24", "10.96.0.1/32", f"{EXTERNAL}/32", f"{VIP}/32", "fd00:10::/64",
    ]  # fmt: skip
    with pytest.raises(Invalid):
        shown_routes(world.facts, {"ipv4-only": "", "ipv6-only": ""})
    with pytest.raises(Invalid, match="is none of"):
        shown_routes(world.facts, {"type": "Nothing"})


@pytest.mark.parametrize(
    "ip", ["192.0.2.1", "192.0.2.7", "192.0.2.9", "192.0.2.10", "10.10.0.5", "10.96.0.9", "2001:db8::1"]
)
@pytest.mark.parametrize("field", ["external_ips", "load_balancer_ips"])
def test_an_address_of_a_node_a_pod_a_router_or_another_service_is_not_advertised(
    ip: str, field: str
) -> None:
    world = World(stored(bgpPeers=[PEER], bfdPeers=[{"address": "192.0.2.10"}], advertisements=ALL))
    other = Service("default", "other", ("10.96.0.9",), (("TCP", 80),), (), ("http",))
    world.put(AgentNode("n2", ("192.0.2.7",), ("192.0.2.7",)), other)
    balanced = (VIP, ip) if field == "load_balancer_ips" else (VIP,)
    claim = msgspec.structs.replace(service(), external_ips=(EXTERNAL, VIP, ip), load_balancer_ips=balanced)
    world.put(claim)
    own = [row["route"] for row in shown_routes(world.facts) if row.get("k8sObjRef") == "default/web"]
    assert own == ["10.96.0.1/32", f"{EXTERNAL}/32", f"{VIP}/32"]


def test_a_policy_without_bgp_peers_advertises_nothing() -> None:
    world = World(stored(bfdPeers=[{"address": "192.0.2.9"}], advertisements=ALL)).put(service())
    assert world.prefixes == []


@pytest.mark.parametrize(
    ("endpoints", "advertised"),
    [
        ((), False),
        ((endpoint("n1"),), True),
        ((endpoint("n1", port="dns"),), True),
        ((endpoint("other"),), False),
        ((endpoint("n1", "unavailable"),), False),
        ((endpoint("n1", "draining"),), True),
        ((endpoint("n1", "draining"), endpoint("other")), False),
        ((endpoint("n1"), endpoint("other")), True),
    ],
)
def test_local_traffic_is_advertised_where_an_endpoint_is(
    endpoints: tuple[Any, ...], advertised: bool
) -> None:
    world = World(stored(bgpPeers=[PEER], advertisements=ALL))
    world.put(service(external_local=True), *endpoints)
    assert (f"{VIP}/32" in world.prefixes) is advertised
    assert "10.96.0.1/32" in world.prefixes
    world.put(service(internal_local=True))
    assert ("10.96.0.1/32" in world.prefixes) is advertised
    assert f"{VIP}/32" in world.prefixes


def test_a_drained_node_withdraws_what_others_serve() -> None:
    world = World(stored(bgpPeers=[PEER], advertisements=ALL)).put(service(), node("n2"))
    world.put(node(cordoned=True))
    assert world.prefixes == ["10.10.0.0/24", "fd00:10::/64"]
    world.put(service(external_local=True), endpoint("n1"))
    assert f"{VIP}/32" in world.prefixes
    world.put(endpoint("other"))
    assert f"{VIP}/32" not in world.prefixes


def test_an_egress_ip_is_advertised_where_it_is() -> None:
    world = World(stored(bgpPeers=[PEER], advertisements=ALL)).put(
        Egress("web", "u", VIP), Egress("none", "v")
    )
    assert f"{VIP}/32" not in world.prefixes
    world.put(LocalAddress(VIP, "antrea-egress0"))
    assert {"route": f"{VIP}/32", "type": "EgressIP", "k8sObjRef": "web"} in shown_routes(world.facts)
    # an address of two objects is one network, until both are gone
    world.put(service())
    world.facts.drop(LocalAddress, VIP)
    assert f"{VIP}/32" in world.plan().prefixes


NEIGHBORS = {
    "192.0.2.9": {
        "remoteAs": 65001,
        "bgpState": "Established",
        "addressFamilyInfo": {"ipv4Unicast": {"sentPrefixCounter": 3}},
        "lastResetDueTo": "Waiting for peer OPEN",
    },
    "2001:DB8::9": {
        "remoteAs": 65002,
        "bgpState": "Idle\n",
        "lastNotificationReason": "OPEN Message Error/Bad Peer AS",
        "lastResetDueTo": "BGP Notification received",
    },
    "junk\nx": {},
    "192.0.2.10": "junk",
}


def test_the_state_of_frr_is_read_whatever_it_is() -> None:
    rows = bgp_states(NEIGHBORS)
    assert rows == (
        BgpPeerState("192.0.2.9", 65001, "Established", 3),
        BgpPeerState(
            "2001:db8::9", 65002, "Idle", 0, "OPEN Message Error/Bad Peer AS; BGP Notification received"
        ),
    )
    waits = {"192.0.2.11": {"remoteAs": 65003, "bgpState": "Idle", "peerBfdInfo": {"status": "Down"}}}
    assert bgp_states(waits) == (BgpPeerState("192.0.2.11", 65003, "Idle", 0, "BFD is down"),)
    assert bgp_states([]) == ()
    assert bfd_states({}) == ()
    peers = [
        {"peer": "192.0.2.9", "status": "up"},
        {"peer": "x"},
        7,
        {"peer": "fd00::1", "diagnostic": "neighbor"},
    ]
    assert bfd_states(peers) == (
        BfdPeerState("192.0.2.9", up=True),
        BfdPeerState("fd00::1", False, "neighbor"),
    )


def test_sessions_that_are_down_are_named_with_the_last_error() -> None:
    world = World(stored(bgpPeers=[PEER, {"address": "2001:db8::9", "asn": 65002}]))
    world.put(
        *bgp_states(NEIGHBORS),
        BfdPeerState("192.0.2.9", up=False, diagnostic="control detection time expired"),
    )
    assert bgp_peers_down(world.facts) == (
        "BGP session with 2001:db8::9 is Idle (OPEN Message Error/Bad Peer AS; BGP Notification received)"
    )
    assert (
        bfd_peers_down(world.facts) == "BFD session with 192.0.2.9 is down (control detection time expired)"
    )
    assert shown_peers(world.facts) == [
        {"peer": "192.0.2.9:179", "asn": 65001, "state": "Established", "bfd": "Down"},
        {
            "peer": "[2001:db8::9]:179", "asn": 65002, "state": "Idle",
            "lastError": "OPEN Message Error/Bad Peer AS; BGP Notification received",
        },
    ]  # fmt: skip


@pytest.mark.parametrize("state", [{"cordoned": True}, {"being_removed": True}, {"not_ready": True}])
def test_a_node_that_leaves_is_drained_while_another_stays(state: dict[str, Any]) -> None:
    world = World(stored(bgpPeers=[PEER]))
    world.put(node(**state))
    row = world.facts.get(EffectivePolicy)
    assert row is not None
    assert not row.is_draining
    world.put(AgentNode("n2", ("192.0.2.2",), ("192.0.2.2",)))
    row = world.facts.get(EffectivePolicy)
    assert row is not None
    assert row.is_draining
    assert row.nodes == (PolicyNode("n1", is_leaving=True), PolicyNode("n2", is_leaving=False))
    world.put(GossipMember("n2", alive=False))
    row = world.facts.get(EffectivePolicy)
    assert row is not None
    assert not row.is_draining


def test_an_agent_that_ends_for_good_drains_its_node() -> None:
    world = World(stored(bgpPeers=[PEER]))
    world.put(AgentNode("n2", ("192.0.2.2",), ("192.0.2.2",)))
    row = world.facts.get(EffectivePolicy)
    assert row is not None
    assert not row.is_draining
    world.put(AgentLeaving())
    row = world.facts.get(EffectivePolicy)
    assert row is not None
    assert row.is_draining
