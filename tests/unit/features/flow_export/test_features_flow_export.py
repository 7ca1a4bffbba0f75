"""When a record is due, what it says, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest
from flow_world import ACTIVE, IDLE, STALE, World, entry

from antrea.apis.controlplane import (
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyReference,
    NetworkPolicyRule,
)
from antrea.apis.flow import NANOS, FlowEndReason, FlowRecord, FlowType, RuleAction
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import FlowExporter
from antrea.config.shape import Collector, collector
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.egress import Egress, EgressPod
from antrea.facts.flow_destination import FlowDestination
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.pod import LocalPod
from antrea.facts.service import Service
from antrea.features.flow_export.agent import FEATURES
from antrea.features.flow_export.connection import SLICE, ConnectionStore, DeniedStore
from antrea.features.flow_export.metadata import PodNetworks, tracked_record
from antrea.features.flow_export.settings import destination_settings, settings
from antrea.features.network_policy.agent.conjunction import ConjunctionId
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule
from antrea.features.proxy.host import NODE_PORT_IPS
from antrea.host.sysctl import Sysctl
from antrea.openflow.fields import SERVICE
from antrea.openflow.tracked_connection import start_time, tracked_connections

if TYPE_CHECKING:
    from antrea.openflow.tracked_connection import TrackedConnection


def test_a_connection_with_traffic_is_exported_at_each_active_timeout_with_what_came_since() -> None:
    world = World()
    world.poll(0, entry(3))
    assert world.due(4.9) == []
    assert world.due(5) == [(FlowEndReason.ACTIVE_TIMEOUT, 3, 3)]
    world.poll(6, entry(10))
    assert world.due(9.9) == []
    assert world.due(10) == [(FlowEndReason.ACTIVE_TIMEOUT, 10, 7)]


def test_a_connection_without_traffic_is_exported_once_as_idle_and_again_when_it_has_some() -> None:
    world = World()
    world.poll(0, entry(3))
    world.due(5)
    world.poll(6, entry(3))
    assert world.due(10) == [(FlowEndReason.IDLE_TIMEOUT, 3, 0)]
    world.poll(11, entry(3))
    assert world.due(1000) == []
    world.poll(1001, entry(4))
    assert world.due(1006) == [(FlowEndReason.ACTIVE_TIMEOUT, 4, 1)]


@pytest.mark.parametrize("ends", [(entry(5, "TIME_WAIT"),), ()])
def test_the_end_of_a_connection_is_exported_once_and_it_is_forgotten(
    ends: tuple[TrackedConnection, ...],
) -> None:
    world = World()
    world.poll(0, entry(3))
    world.due(5)
    world.poll(6, *ends)
    assert [reason for reason, _, _ in world.due(12)] == [FlowEndReason.END_OF_FLOW]
    world.poll(13, *ends)
    assert world.due(1000) == []
    world.poll(14)
    assert len(world.store) == 0


def test_a_record_ends_when_its_connection_was_there_last() -> None:
    world = World()
    world.poll(0, entry(3))
    world.poll(4, entry(3))
    assert [one.flow_end_seconds for one in world.store.due(5, 10)] == [1004]
    world.poll(8, entry(3))
    world.poll(12)
    assert [one.flow_end_seconds for one in world.store.due(12, 10)] == [1008]


@pytest.mark.parametrize(
    ("start", "nanos"), [("", 0), ("2026-11-23T05:07:03.25", NANOS // 4)], ids=["not known", "known"]
)
def test_times_of_a_record_are_exact_and_that_of_its_start_only_where_it_is_known(
    start: str, nanos: int
) -> None:
    world, began = World(), int(start_time(start) or 1000)
    world.clock = began
    world.poll(0.5, entry(3, start=start))
    world.poll(4.75, entry(3, start=start))
    [found] = world.store.due(5.5, 10)
    assert (found.flow_end_seconds, found.flow_end_nanos) == (began + 4, 3 * NANOS // 4)
    assert (found.flow_start_seconds, found.flow_start_nanos) == (began, nanos)


def test_a_connection_that_is_found_at_a_poll_began_halfway_since_the_one_before() -> None:
    world = World()
    world.poll(0)
    world.poll(9, entry(3))
    [found] = world.store.due(14, 10)
    assert (found.flow_start_seconds, found.flow_start_nanos) == (1004, 0)


def test_a_denied_connection_begins_with_its_first_packet() -> None:
    store = DeniedStore(ACTIVE, IDLE)
    for now in (0.25, 1.5):
        store.add("a", 60, now, 1000 + now, FlowRecord)
    [found] = store.due(6, 10)
    assert (found.start, found.end) == (1000.25, 1001.5)


def test_ports_that_are_used_again_make_another_record() -> None:
    world = World()
    world.poll(0, entry(3, "TIME_WAIT"))
    assert [one[0] for one in world.due(5)] == [FlowEndReason.END_OF_FLOW]
    world.poll(6, entry(1, "SYN_SENT"))
    assert world.due(11) == [(FlowEndReason.ACTIVE_TIMEOUT, 1, 1)]


def test_what_cannot_be_exported_is_forgotten_after_a_while() -> None:
    world = World()
    world.poll(0, entry(3))
    world.poll(10)
    assert len(world.store) == 1
    world.poll(STALE + 9)
    assert (len(world.store), world.store.lost) == (1, 0)
    world.poll(STALE + 10)
    assert (len(world.store), world.store.lost) == (0, 1)
    assert world.due(STALE + 10) == []


def test_a_connection_that_was_idle_for_long_has_a_record_of_its_end() -> None:
    world = World()
    world.poll(0, entry(3))
    assert [reason for reason, _, _ in world.due(IDLE)] == [FlowEndReason.ACTIVE_TIMEOUT]
    world.poll(2 * STALE)
    assert [reason for reason, _, _ in world.due(2 * STALE)] == [FlowEndReason.END_OF_FLOW]
    world.poll(2 * STALE + 1)
    assert (len(world.store), world.store.lost) == (0, 0)


def test_of_too_many_that_ended_with_the_collector_away_the_oldest_are_lost_and_counted() -> None:
    store = ConnectionStore(ACTIVE, IDLE, STALE, most_ended=100)
    turns, each = 50, 3 * SLICE
    for turn in range(turns):
        new = [entry(3, port=turn * each + at) for at in range(each)]
        for changed, gone in ((new, ()), ((), new)):
            for _ in store.update(
                changed, gone, turn, 1000 + turn, lambda one: FlowRecord(source_transport_port=one.key[2])
            ):
                pass
    assert (len(store), store.lost) == (100, turns * each - 100)
    # what nobody asks for takes no memory
    assert len(store._queue._heap) < 2 * each + 200
    last = range(turns * each - 100, turns * each)
    assert [one.source_transport_port for one in store.due(turns, 9999)] == [*last]


def test_connections_that_share_a_record_have_ports_times_and_counts_of_their_own() -> None:
    store, shared = ConnectionStore(ACTIVE, IDLE, STALE), FlowRecord(proxy_snat_ip="192.0.2.9")
    at = "2026-11-23T05:07:03"
    entries = [
        entry(port, port=port, start=start, source_port_seen=9 * port) for port, start in ((1, ""), (2, at))
    ]
    assert len({one.kind for one in entries}) == 1
    for _ in store.update(entries, (), 0, 1000, lambda _: shared):
        pass
    found = [
        (one.source_transport_port, one.proxy_snat_port, one.flow_start_seconds, one.packet_total_count)
        for one in store.due(5, 9)
    ]
    assert found == [(1, 9, 1000, 1), (2, 18, start_time(at), 2)]
    assert shared == FlowRecord(proxy_snat_ip="192.0.2.9")


@pytest.mark.parametrize(
    "differs",
    [
        {"mark": 17}, {"label": 7}, {"destination": "10.96.0.9"}, {"port": 81}, {"source_port_seen": 1001},
        {"key": (6, "10.1.0.5", 1000, "10.2.0.7", 81, 0)}, {"key": (17, "10.1.0.5", 1000, "10.2.0.7", 80, 0)},
    ],
)  # fmt: skip
def test_what_a_record_has_of_a_connection_makes_it_another_kind(differs: dict[str, Any]) -> None:
    found = entry()
    assert found._replace(**differs).kind != found.kind
    assert entry(port=1001).kind == found.kind


def test_others_have_their_turn_while_many_connections_are_taken_in() -> None:
    store = ConnectionStore(ACTIVE, IDLE, STALE)
    entries = [entry(port=port) for port in range(3 * SLICE)]
    assert sum(1 for _ in store.update(entries, (), 0, 1000, lambda _: FlowRecord())) == 3
    assert (len(store.due(5, 10)), len(store.due(5, 9999))) == (10, 3 * SLICE - 10)


def test_denied_packets_are_counted_until_none_comes_and_never_too_many() -> None:
    store = DeniedStore(ACTIVE, IDLE, most=2)
    for key, now in (("a", 0), ("a", 1), ("b", 1), ("c", 2)):
        store.add(key, 60, now, 1000 + now, FlowRecord)
    assert (len(store), store.lost) == (2, 1)
    first, second = store.due(6, 10)
    assert (first.packet_delta_count, first.octet_total_count, second.packet_total_count) == (2, 120, 1)
    assert [one.packet_delta_count for one in store.due(16, 10)] == [0, 0]
    assert len(store) == 0


def test_the_first_record_of_a_denied_connection_is_due_at_once_and_others_as_the_timeouts_have_it() -> None:
    store = DeniedStore(ACTIVE, IDLE)
    due = dict[float, list[int]]()
    for now in (0, 0.5, 1, 3, 5.4, 5.6, 7, 10.6, 15.7):
        if now in (0, 1, 3, 7):
            store.add("a", 60, now, 1000 + now, FlowRecord)
        else:
            due[now] = [one.packet_delta_count for one in store.due(now, 10)]
    assert due == {0.5: [1], 5.4: [], 5.6: [2], 10.6: [1], 15.7: [0]}
    assert len(store) == 0


def test_denied_packets_take_no_memory_while_the_collector_is_away() -> None:
    store = DeniedStore(ACTIVE, IDLE)
    for now in range(1000):
        store.add("a", 60, now, 1000 + now, FlowRecord)
    assert len(store._queue._heap) == 1
    assert [one.packet_total_count for one in store.due(1000, 10)] == [1000]


@pytest.mark.parametrize(
    ("found", "at_once"),
    [
        (entry(1, "SYN_SENT"), True),
        (entry(1, "SYN_RECV", reply_packets=1), False),
        (entry(1, ""), True),
        (entry(1, "", reply_packets=1), False),
        (entry(0, ""), False),
    ],
    ids=["TCP", "TCP answered", "UDP", "UDP answered", "not counted"],
)
def test_the_first_record_of_a_connection_without_an_answer_is_due_at_once(
    found: TrackedConnection, at_once: bool
) -> None:
    world = World()
    world.poll(0, found)
    assert len(world.due(0.5)) == at_once
    # what comes then is counted for the next one
    world.poll(1, found._replace(packets=found.packets + 2))
    assert [packets for _, _, packets in world.due(5.5)] == [2 if at_once else found.packets + 2]
    assert len(world.due(11)) == 1


POD = PodInterface("a-1", "c1", "shop", "web", "0a:00:00:00:00:01", ("10.1.0.5", "fd00:1::5"), 3, "u1")
LOCAL = PodInterface("b-1", "c2", "shop", "db", "0a:00:00:00:00:02", ("10.1.0.6",), 4, "u2")


def cluster(*rows: Any) -> tuple[Facts, PodNetworks]:
    facts = Facts()
    for row in (
        ThisNode("n1", ("10.1.0.0/24", "fd00:1::/64"), ("192.0.2.1",), uid="u-n1"),
        PeerNode("n2", ("10.2.0.0/24",), ("192.0.2.2",), ("192.0.2.2",)),
        POD, LOCAL, *rows,
    ):  # fmt: skip
        facts.put(row)
    return facts, PodNetworks(facts)


def policy(uid: str, name: str, rule: str, number: int) -> tuple[Any, ...]:
    source = NetworkPolicyReference(type="AntreaNetworkPolicy", namespace="shop", name=name, uid=uid)
    found = NetworkPolicy(
        metadata=ObjectMetadata(name=uid),
        rules=(
            NetworkPolicyRule(
                name=rule, from_=NetworkPolicyPeer(), to=NetworkPolicyPeer(), enable_logging=False
            ),
        ),
        source_ref=source,
    )
    return (SentPolicy(found), StatedRule(uid, 0, f"rule-{uid}"), ConjunctionId(number, f"rule-{uid}", 100))


def test_a_record_has_both_directions_rules_the_service_and_the_local_pods() -> None:
    service = Service("shop", "db", ("10.96.0.9",), (("TCP", 5432),), port_names=("sql",), uid="u-service")
    facts, networks = cluster(
        LocalPod("shop", "web", "u-web"),
        LocalPod("shop", "db", "u-db"),
        service,
        *policy("u-out", "out", "to-db", 7),
        *policy("u-in", "in", "from-web", 5),
    )
    line = (
        "tcp,orig=(src=10.1.0.5,dst=10.96.0.9,sport=4000,dport=5432),reply=(src=10.1.0.6,dst=10.1.0.5,sport=5432,dport=4000),"
        "zone=65520,mark=19,labels=0x700000005,protoinfo=(state=ESTABLISHED)"
    )
    record = tracked_record(facts, networks, next(iter(tracked_connections(line))), 50)
    assert record == FlowRecord(
        flow_start_seconds=50, source_ip="10.1.0.5", destination_ip="10.1.0.6", source_transport_port=4000,
        destination_transport_port=5432, protocol_identifier=6,
        source_pod_name="web", source_pod_namespace="shop", source_node_name="n1",
        destination_pod_name="db", destination_pod_namespace="shop", destination_node_name="n1",
        destination_service_port=5432, destination_service_port_name="shop/db:sql",
        destination_cluster_ip="10.96.0.9", destination_service_ip="10.96.0.9",
        egress_network_policy_name="out", egress_network_policy_namespace="shop", egress_network_policy_type=2,
        egress_network_policy_rule_name="to-db", egress_network_policy_rule_action=int(RuleAction.ALLOW),
        ingress_network_policy_name="in", ingress_network_policy_namespace="shop", ingress_network_policy_type=2,
        ingress_network_policy_rule_name="from-web", ingress_network_policy_rule_action=int(RuleAction.ALLOW),
        flow_type=int(FlowType.INTRA_NODE), source_pod_uid="u-web", destination_pod_uid="u-db", destination_service_uid="u-service",
        egress_network_policy_uid="u-out", ingress_network_policy_uid="u-in",
        source_node_uid="u-n1", destination_node_uid="u-n1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "destination", "kind"),
    [
        ("10.1.0.5", "10.1.0.6", FlowType.INTRA_NODE),
        ("10.1.0.5", "10.2.0.9", FlowType.INTER_NODE),
        ("10.2.0.9", "10.1.0.5", FlowType.INTER_NODE),
        ("10.1.0.5", "198.51.100.7", FlowType.TO_EXTERNAL),
        ("198.51.100.7", "10.1.0.5", FlowType.FROM_EXTERNAL),
        ("10.2.0.1", "10.1.0.5", FlowType.INTER_NODE),
        ("10.1.0.5", "10.1.0.1", None),
        ("10.2.0.9", "198.51.100.7", None),
        ("10.2.0.9", "10.2.0.8", None),
    ],
)
def test_the_type_of_a_flow_says_which_way_it_goes(
    source: str, destination: str, kind: FlowType | None
) -> None:
    facts, networks = cluster()
    found = entry(key=(6, source, 4000, destination, 80, 0), source_seen=source, source_port_seen=4000)
    record = tracked_record(facts, networks, found, 50)
    assert (record and record.flow_type) == (kind and int(kind))


@pytest.mark.parametrize(
    ("to", "port", "name", "ip"),
    [
        ("10.96.0.9", 5432, "shop/db:sql", "10.96.0.9"),
        ("203.0.113.9", 5432, "shop/db:sql", "203.0.113.9"),
        (NODE_PORT_IPS[0], 30001, "shop/db:sql", ""),
        (NODE_PORT_IPS[0], 30002, "", ""),
        (NODE_PORT_IPS[0], 5432, "", ""),
        ("203.0.113.9", 30001, "", ""),
    ],
)
def test_a_connection_from_outside_has_the_service_that_was_asked(
    to: str, port: int, name: str, ip: str
) -> None:
    service = Service(
        "shop", "db", ("10.96.0.9", "203.0.113.9"), (("TCP", 5432), ("UDP", 5432)), ("203.0.113.9",),
        port_names=("sql", "fast"), node_ports=(30001, 30002),
    )  # fmt: skip
    facts, networks = cluster(service)
    found = entry(key=(6, "198.51.100.7", 4000, "10.1.0.5", 5432, 0), destination=to, mark=1 | SERVICE.mask)
    found = found._replace(port=port)
    record = tracked_record(facts, networks, found, 50)
    assert record is not None
    assert record.flow_type == FlowType.FROM_EXTERNAL
    assert record.destination_service_port_name == name
    assert record.destination_service_port == (port if name else 0)
    assert (record.destination_service_ip, record.destination_cluster_ip) == (ip, ip)


def test_what_leaves_the_cluster_has_its_egress() -> None:
    egress = Egress("out", "u", ip="203.0.113.9", node="n2", excepts=("198.51.100.8/32",))
    facts, networks = cluster(egress, EgressPod("out", "shop/web"))
    for to, name in (("198.51.100.7", "out"), ("198.51.100.8", "")):
        record = tracked_record(facts, networks, entry(key=(6, "10.1.0.5", 4000, to, 80, 0)), 50)
        assert record is not None
        assert (record.egress_name, record.egress_uid) == (name, "u" * bool(name))
        assert (bool(record.egress_ip), bool(record.egress_node_name)) == (bool(name), bool(name))


def test_a_connection_that_a_later_rule_denied_is_not_one_that_was_let_pass() -> None:
    facts, networks = cluster()
    assert tracked_record(facts, networks, entry(mark=0), 50) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "flow-aggregator/flow-aggregator:4739:tls",
            Collector("flow-aggregator/flow-aggregator", 4739, "tls"),
        ),
        (
            "flow-aggregator/flow-aggregator:14739:grpc",
            Collector("flow-aggregator/flow-aggregator", 14739, "grpc"),
        ),
        ("192.0.2.1", Collector("192.0.2.1", 4739, "tls")),
        ("192.0.2.1:9995:udp", Collector("192.0.2.1", 9995, "udp")),
        ("[fd00::1]::tcp", Collector("fd00::1", 4739, "tcp")),
        ("collector.example:99", Collector("collector.example", 99, "tls")),
    ],
)
def test_the_address_of_a_collector_is_read_as_upstream_reads_it(text: str, found: Collector) -> None:
    assert collector(text) == found


@pytest.mark.parametrize("text", ["", "a:b:c", "a:1:sctp", "a:0", "a:70000", "fd00::1"])
def test_what_is_no_address_of_a_collector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host"):
        collector(text)


@pytest.mark.parametrize("protocol", ["tls", "grpc"])
def test_a_destination_over_tls_needs_the_authority_of_its_collector(protocol: str) -> None:
    asked = FlowDestination("siem", "u", "collectors/siem:4739", protocol)
    with pytest.raises(Invalid, match=f"^spec.tlsConfig: is required with .*{protocol}"):
        destination_settings(asked, 5)
    found = destination_settings(msgspec.structs.replace(asked, authority="collectors/siem-ca"), 5)
    assert found.collector == Collector("collectors/siem", 4739, protocol)
    assert found.trust.server_name == "siem.collectors.svc"


def test_timeouts_are_at_least_the_poll_interval_and_unknown_protocols_are_left_out() -> None:
    own = msgspec.convert(
        {
            "flowExporter": {
                "flowPollInterval": "20s",
                "idleFlowExportTimeout": "10m",
                "protocolFilter": ["TCP", "x"],
            }
        },
        AgentConfig,
    )
    found = settings(own)
    assert (found.poll, found.active, found.idle, found.stale) == (20, 20, 600, 1200)
    assert found.protocols == {6}


@pytest.mark.parametrize(
    ("datapath", "enable", "objects", "counted"),
    [("system", True, 0, True), ("system", False, 2, True), ("system", False, 0, False), ("netdev", True, 1, False)],
)  # fmt: skip
def test_the_kernels_connection_tracking_counts_while_its_connections_are_exported(
    datapath: Literal["system", "netdev"], enable: bool, objects: int, counted: bool
) -> None:
    exporter = FlowExporter(enable=enable)
    facts = Facts()
    facts.put(AgentConfig(ovs_datapath_type=datapath, flow_exporter=exporter))
    facts.put(ThisNode("n1", ("10.1.0.0/24",)))
    for number in range(objects):
        facts.put(FlowDestination(f"d{number}", "", "192.0.2.9:4739", "tcp"))
    (feature,) = FEATURES
    put = Engine(facts, feature.units).plan().put
    found = {one.path: one.value for one in put if isinstance(one, Sysctl)}
    names = ("net/netfilter/nf_conntrack_acct", "net/netfilter/nf_conntrack_timestamp")
    assert found == (dict.fromkeys(names, "1") if counted else {})
