"""Both Nodes' records of a connection become one, with each side's counters, and it is exported when it is due."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.apis.flow import FlowEndReason, FlowRecord, FlowType, RuleAction
from antrea.config.flow_aggregator import FlowAggregatorConfig, LogFilter
from antrea.config.load import parse
from antrea.errors import Invalid
from antrea.flow_aggregator.aggregation import Aggregation
from antrea.flow_aggregator.answers import flow_records, record_metrics
from antrea.flow_aggregator.configuration import accept
from antrea.flow_aggregator.destinations import Destinations
from antrea.flow_aggregator.log_line import log_line, passes

ACTIVE, INACTIVE = 60, 90


def half(**more: Any) -> FlowRecord:
    fields: dict[str, Any] = {
        "source_ip": "10.1.0.5", "destination_ip": "10.2.0.7", "source_transport_port": 4000,
        "destination_transport_port": 80, "protocol_identifier": 6, "flow_type": int(FlowType.INTER_NODE),
        "flow_start_seconds": 100, "flow_end_seconds": 110, "flow_end_reason": int(FlowEndReason.ACTIVE_TIMEOUT),
        "packet_total_count": 10, "packet_delta_count": 10, "octet_total_count": 1000, "octet_delta_count": 1000,
        "reverse_octet_total_count": 500, "reverse_octet_delta_count": 500, "tcp_state": "ESTABLISHED",
    }  # fmt: skip
    return FlowRecord(**(fields | more))


def source(**more: Any) -> FlowRecord:
    return half(source_pod_name="web", source_pod_namespace="shop", source_node_name="n1",
                egress_network_policy_name="out", **more)  # fmt: skip


def destination(**more: Any) -> FlowRecord:
    return half(destination_pod_name="db", destination_pod_namespace="shop", destination_node_name="n2",
                ingress_network_policy_name="in", **more)  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
def test_both_halves_become_one_record_at_once(first: int) -> None:
    halves = source(source_pod_uid="u1"), destination(destination_pod_uid="u2", flow_end_seconds=112)
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(halves[first], 0)
    assert flows.due(1, 10) == []
    flows.add(halves[1 - first], 1)
    [found] = flows.due(1, 10)
    assert (found.source_pod_name, found.source_node_name) == ("web", "n1")
    assert (found.destination_pod_name, found.destination_node_name) == ("db", "n2")
    assert (found.source_pod_uid, found.destination_pod_uid) == ("u1", "u2")
    assert (found.egress_network_policy_name, found.ingress_network_policy_name) == ("out", "in")
    assert (found.flow_end_seconds_from_source_node, found.flow_end_seconds_from_destination_node) == (
        110,
        112,
    )
    assert found.octet_total_count_from_source_node == found.octet_total_count_from_destination_node == 1000
    assert (found.throughput_from_source_node, found.throughput_from_destination_node) == (800, 666)
    assert found.octet_total_count == 1000
    assert len(flows) == 1


def test_what_comes_later_is_added_and_exported_at_the_active_timeout() -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(source(), 0)
    flows.add(destination(), 0)
    assert len(flows.due(0, 10)) == 1
    for at in (5, 10):
        flows.add(
            source(flow_end_seconds=110 + at, octet_total_count=1000 + 100 * at, octet_delta_count=500), at
        )
    assert flows.due(59, 10) == []
    [found] = flows.due(60, 10)
    assert (found.octet_total_count_from_source_node, found.octet_delta_count_from_source_node) == (
        2000,
        1000,
    )
    assert (found.octet_total_count, found.octet_delta_count, found.throughput) == (2000, 1000, 800)
    assert found.octet_delta_count_from_destination_node == 0
    assert flows.due(99, 10) == []
    assert flows.due(100, 10) == []
    assert len(flows) == 0


def test_the_end_of_a_connection_is_kept() -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(source(), 0)
    flows.add(destination(), 0)
    flows.due(0, 10)
    flows.add(
        source(flow_end_seconds=115, flow_end_reason=int(FlowEndReason.END_OF_FLOW), tcp_state="TIME_WAIT"), 5
    )
    flows.add(destination(flow_end_seconds=120), 6)
    [found] = flows.due(90, 10)
    assert (found.flow_end_reason, found.flow_end_seconds) == (FlowEndReason.END_OF_FLOW, 120)


@pytest.mark.parametrize("ahead", [60, -60])
def test_clocks_of_nodes_that_differ_by_a_minute_lose_nothing(ahead: int) -> None:
    """Each Node's times are compared with its own."""
    flows = Aggregation(ACTIVE, INACTIVE)
    for turn in (1, 2, 3):
        counts = {"octet_total_count": 1000 * turn, "octet_delta_count": 1000}
        flows.add(source(flow_end_seconds=110 + 10 * turn + ahead, **counts), turn)
        flows.add(destination(flow_end_seconds=110 + 10 * turn, **counts), turn)
    [found] = flows.due(3 + ACTIVE, 10)
    sides = ("source", "destination")
    assert [getattr(found, f"octet_total_count_from_{side}_node") for side in sides] == [3000, 3000]
    assert [getattr(found, f"octet_delta_count_from_{side}_node") for side in sides] == [3000, 3000]
    assert [getattr(found, f"throughput_from_{side}_node") for side in sides] == [800, 800]
    assert (found.octet_total_count, found.octet_delta_count) == (3000, 3000)
    assert found.flow_end_seconds == max(140, 140 + ahead)


def alone(**more: Any) -> FlowRecord:
    return half(flow_type=int(FlowType.INTRA_NODE), source_pod_name="a", destination_pod_name="b", **more)


def rates_of(flows: Aggregation, now: float) -> tuple[int, int, int, int]:
    [found] = flows.due(now, 10)
    assert found.throughput_from_destination_node == found.throughput_from_source_node
    return (
        found.throughput,
        found.reverse_throughput,
        found.throughput_from_source_node,
        found.reverse_throughput_from_source_node,
    )


def test_throughput_is_of_the_time_between_two_records_to_less_than_a_second() -> None:
    """As seconds of the clock the first ones of these times are 10, 1 and 3 apart."""
    flows, second = Aggregation(ACTIVE, INACTIVE), 1_000_000_000
    flows.add(alone(flow_start_nanos=second // 4, flow_end_nanos=second // 2), 0)
    assert rates_of(flows, 0) == (780, 390, 780, 390)  # in 10.25 s
    flows.add(alone(flow_end_seconds=111, flow_end_nanos=second - second // 8, octet_total_count=1100), 1)
    assert rates_of(flows, ACTIVE) == (581, 0, 581, 0)  # in 1.375 s
    flows.add(alone(flow_end_seconds=114, octet_total_count=2000, reverse_octet_total_count=1000), ACTIVE + 1)
    assert rates_of(flows, 2 * ACTIVE) == (3388, 1882, 3388, 1882)  # in 2.125 s


@pytest.mark.parametrize("reason", [FlowEndReason.ACTIVE_TIMEOUT, FlowEndReason.END_OF_FLOW])
def test_the_first_record_has_no_throughput_where_nobody_knows_when_the_connection_began(
    reason: FlowEndReason,
) -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(alone(flow_end_nanos=1, flow_end_reason=int(reason)), 0)
    assert rates_of(flows, 0) == (0, 0, 0, 0)
    flows.add(alone(flow_end_seconds=112, flow_end_nanos=1, octet_total_count=1500), 2)
    assert rates_of(flows, ACTIVE) == (2000, 0, 2000, 0)


def test_a_half_that_comes_second_has_no_throughput_either() -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(source(flow_end_nanos=1), 0)
    flows.add(destination(flow_end_nanos=2), 0)
    [found] = flows.due(0, 10)
    assert (found.throughput_from_source_node, found.throughput_from_destination_node) == (0, 0)


def test_a_record_that_comes_too_late_makes_no_time_longer() -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    for at, octets in ((110, 1000), (120, 3000), (115, 2000), (130, 4000)):
        flows.add(alone(flow_end_seconds=at, octet_total_count=octets), at - 110)
    [found] = flows.due(20, 10)
    assert found.throughput == 800


def test_half_a_record_is_dropped_and_counted() -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(source(), 0)
    assert flows.due(60, 10) == flows.due(90, 10) == []
    assert (len(flows), flows.dropped) == (0, 1)


@pytest.mark.parametrize(
    "alone",
    [
        source(egress_network_policy_rule_action=int(RuleAction.DROP)),
        source(egress_network_policy_rule_action=int(RuleAction.REJECT)),
        destination(ingress_network_policy_rule_action=int(RuleAction.REJECT)),
        half(flow_type=int(FlowType.INTRA_NODE), source_pod_name="a", destination_pod_name="b"),
        half(flow_type=int(FlowType.TO_EXTERNAL), source_pod_name="a"),
    ],
)
def test_what_one_node_alone_sees_is_exported_at_once(alone: FlowRecord) -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(alone, 0)
    [found] = flows.due(0, 10)
    assert found.octet_total_count_from_source_node == found.octet_total_count_from_destination_node == 1000


def test_what_a_rule_of_the_destination_drops_is_joined() -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(source(tcp_state="SYN_SENT"), 0)
    flows.add(destination(ingress_network_policy_rule_action=int(RuleAction.DROP)), 1)
    [found] = flows.due(1, 10)
    assert (found.source_pod_name, found.ingress_network_policy_rule_action) == ("web", RuleAction.DROP)


def test_counters_of_a_half_that_lasts_no_time_are_taken() -> None:
    """Such as the one packet of a denied connection."""
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(source(), 0)
    flows.add(destination(ingress_network_policy_rule_action=int(RuleAction.DROP), flow_end_seconds=100), 1)
    [found] = flows.due(1, 10)
    assert (found.octet_total_count_from_destination_node, found.throughput_from_destination_node) == (
        1000,
        0,
    )


def by_another_node(**more: Any) -> FlowRecord:
    """Of the Node that a client outside asked."""
    return half(
        source_ip="198.51.100.7", source_transport_port=999, flow_type=int(FlowType.FROM_EXTERNAL),
        proxy_snat_ip="10.1.0.1", proxy_snat_port=4000, **more,
    )  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
def test_a_connection_from_outside_by_another_node_keeps_its_client(first: int) -> None:
    flows = Aggregation(ACTIVE, INACTIVE)
    halves = destination(source_ip="10.1.0.1"), by_another_node()
    flows.add(halves[first], 0)
    assert flows.due(0, 10) == []
    flows.add(halves[1 - first], 0)
    [found] = flows.due(0, 10)
    assert (found.source_ip, found.source_transport_port, found.destination_pod_name) == (
        "198.51.100.7",
        999,
        "db",
    )
    assert (found.proxy_snat_ip, found.proxy_snat_port) == ("10.1.0.1", 4000)
    assert found.flow_type == FlowType.FROM_EXTERNAL


@pytest.mark.parametrize("first", [0, 1])
def test_a_connection_of_a_pod_that_another_node_sees_as_its_node_keeps_the_pod(first: int) -> None:
    """As to a NodePort that kube-proxy serves."""
    flows = Aggregation(ACTIVE, INACTIVE)
    asked = source(source_transport_port=999, proxy_snat_ip="10.1.0.1", proxy_snat_port=4000)
    halves = destination(source_ip="10.1.0.1"), asked
    flows.add(halves[first], 0)
    assert flows.due(0, 10) == []
    flows.add(halves[1 - first], 0)
    [found] = flows.due(0, 10)
    assert (found.source_ip, found.source_transport_port) == (asked.source_ip, 999)
    assert (found.source_pod_name, found.destination_pod_name) == ("web", "db")
    assert found.flow_type == FlowType.INTER_NODE


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("later", [105, 110, 115])
def test_a_node_that_counts_nothing_of_a_connection_takes_no_counts_from_the_record(
    first: int, later: int
) -> None:
    """As one that was asked for another's Pod, on the userspace datapath."""
    counted = destination(source_ip="10.1.0.1")
    nothing = dict.fromkeys([name for name in counted.__struct_fields__ if name.endswith("_count")], 0)
    halves = counted, by_another_node(flow_end_seconds=later, **nothing)
    flows = Aggregation(ACTIVE, INACTIVE)
    flows.add(halves[first], 0)
    flows.add(halves[1 - first], 0)
    [found] = flows.due(0, 10)
    counts = found.packet_total_count, found.octet_total_count, found.octet_delta_count
    assert (counts, found.reverse_octet_total_count, found.throughput) == ((10, 1000, 1000), 500, 800)
    assert (found.octet_total_count_from_source_node, found.octet_total_count_from_destination_node) == (
        0,
        1000,
    )


def test_there_are_never_too_many_and_nothing_is_left_of_those_that_ended() -> None:
    flows = Aggregation(ACTIVE, INACTIVE, most=100)
    for port in range(150):
        flows.add(half(flow_type=1, source_transport_port=port), 0)
    assert (len(flows), flows.dropped) == (100, 50)
    assert len(flows.due(0, 60)) + len(flows.due(0, 60)) == 100
    assert flows.due(1000, 1000) == []
    assert (len(flows), flows._heap) == (0, [])


def test_a_line_of_the_log_is_one_line_with_names() -> None:
    record = source(
        destination_service_port_name='shop/db:"a,b"', egress_network_policy_type=2,
        egress_network_policy_rule_action=int(RuleAction.ALLOW), ingress_network_policy_name="x\ny",
    )  # fmt: skip
    line = log_line(record, pretty=True)
    assert line.startswith("100,110,10.1.0.5,10.2.0.7,4000,80,TCP,web,shop,n1,,,,,,0,")
    assert ",out,,,Allow,AntreaNetworkPolicy,,," in line
    assert '"shop/db:""a,b"""' in line
    assert "\n" not in line
    assert log_line(record, pretty=False).split(",")[6] == "6"


def test_a_line_of_the_log_has_requests_where_they_are_asked_for() -> None:
    record = source(app_protocol_name="http", http_vals='{"0":{"url":"/a,b"}}', egress_node_name="n9")
    assert log_line(record, pretty=True, requests=True).endswith(',,,http,"{""0"":{""url"":""/a,b""}}",n9')
    assert "http" not in log_line(record, pretty=True)


def test_a_filter_of_the_log_wants_both_actions_and_one_filter_is_enough() -> None:
    dropped = LogFilter(("Drop", "Reject"), ())
    both = LogFilter(("Allow",), ("Allow",))
    assert passes(half(), ())
    assert not passes(half(), (dropped, both))
    assert passes(half(ingress_network_policy_rule_action=2), (dropped, both))
    assert not passes(half(ingress_network_policy_rule_action=1), (dropped, both))
    assert passes(
        half(ingress_network_policy_rule_action=1, egress_network_policy_rule_action=1), (dropped, both)
    )


def test_records_are_asked_for_by_their_ends() -> None:
    rows = [half(), half(source_transport_port=1)]
    assert len(flow_records(rows, {})) == 2
    [found] = flow_records(rows, {"srcip": "10.1.0.5", "srcport": "1"})
    assert (found["sourceIPv4Address"], found["sourceTransportPort"]) == ("10.1.0.5", 1)
    with pytest.raises(Invalid, match="srcport"):
        flow_records(rows, {"srcport": "x"})
    assert record_metrics(3, 2, 1, 4, []).num_records_dropped == 4


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("activeFlowRecordTimeout: 10ms", "activeFlowRecordTimeout"),
        ("flowCollector: {enable: true}", "flowCollector.address"),
        ("flowCollector: {enable: true, address: 'x:y:z'}", "flowCollector.address"),
        ("aggregatorTransportProtocol: sctp", "aggregatorTransportProtocol"),
        ("mode: Other", "mode"),
        ("{mode: Proxy, flowLogger: {enable: true}}", "flowLogger.enable"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(text: str, key: str) -> None:
    with pytest.raises(Invalid, match=key):
        accept(parse(FlowAggregatorConfig, text).config)


def test_the_configuration_says_where_records_go() -> None:
    text = "{flowLogger: {enable: true}, flowCollector: {enable: true, address: '192.0.2.1:4739'}}"
    config = parse(FlowAggregatorConfig, text).config
    accept(config)
    assert [one.name for one in Destinations(config, None).all] == ["flowLogger", "flowCollector"]
