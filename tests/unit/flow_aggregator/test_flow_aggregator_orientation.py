"""Two Nodes' records of one connection are joined, also where one of them does not know which end opened it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from antrea.apis.flow import BiflowDirection, FlowRecord, FlowType
from antrea.flow_aggregator.aggregation import Aggregation
from antrea.flow_aggregator.orientation import turned

if TYPE_CHECKING:
    from collections.abc import Sequence

ARBITRARY = int(BiflowDirection.ARBITRARY)
OF_CLIENT = FlowRecord(
    source_ip="10.1.0.5", source_transport_port=45000, destination_ip="10.2.0.7", destination_transport_port=50000,
    protocol_identifier=6, flow_type=int(FlowType.INTER_NODE), flow_start_seconds=90, flow_end_seconds=100,
    source_pod_name="client", source_pod_namespace="shop", source_node_name="n1",
    packet_total_count=3, octet_total_count=300, reverse_packet_total_count=2, reverse_octet_total_count=200,
)  # fmt: skip
OF_SERVER = msgspec.structs.replace(
    OF_CLIENT, source_pod_name="", source_pod_namespace="", source_node_name="", destination_pod_name="server",
    destination_pod_namespace="shop", destination_node_name="n2", flow_end_seconds=101,
)  # fmt: skip


def unknown(record: FlowRecord) -> FlowRecord:
    return msgspec.structs.replace(record, biflow_direction=ARBITRARY)


def joined(records: Sequence[FlowRecord]) -> list[FlowRecord]:
    flows = Aggregation(1, 60)
    for record in records:
        flows.add(record, 0)
    return flows.due(1, 10)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    "halves", [(OF_CLIENT, unknown(turned(OF_SERVER))), (unknown(turned(OF_CLIENT)), OF_SERVER)]
)
def test_the_half_that_knows_the_direction_decides(
    halves: tuple[FlowRecord, FlowRecord], order: tuple[int, int]
) -> None:
    [one] = joined([halves[at] for at in order])
    assert (one.source_pod_name, one.destination_pod_name, one.biflow_direction) == ("client", "server", 1)
    assert (one.source_transport_port, one.destination_transport_port) == (45000, 50000)
    assert (one.octet_total_count, one.reverse_octet_total_count) == (300, 200)
    assert (one.octet_total_count_from_source_node, one.octet_total_count_from_destination_node) == (300, 300)


def test_two_halves_of_an_unknown_direction_are_joined_as_one_that_is_unknown() -> None:
    [one] = joined([unknown(OF_CLIENT), unknown(turned(OF_SERVER))])
    assert (one.source_pod_name, one.destination_pod_name, one.biflow_direction) == ("client", "server", 0)


def test_two_connections_whose_directions_are_known_are_two() -> None:
    whole = msgspec.structs.replace(OF_CLIENT, flow_type=int(FlowType.TO_EXTERNAL))
    assert len(joined([whole, turned(whole)])) == 2


def test_a_turned_record_has_all_of_the_other_end_and_turned_again_is_the_same() -> None:
    record = msgspec.structs.replace(
        OF_CLIENT, flow_type=int(FlowType.TO_EXTERNAL), throughput=8, reverse_throughput=9,
        packet_delta_count_from_source_node=4, flow_end_seconds_from_source_node=100,
        source_pod_labels="{}", source_pod_uid="u1",
    )  # fmt: skip
    other = turned(record)
    assert other == FlowRecord(
        source_ip="10.2.0.7", source_transport_port=50000, destination_ip="10.1.0.5", destination_transport_port=45000,
        protocol_identifier=6, flow_type=int(FlowType.FROM_EXTERNAL), flow_start_seconds=90, flow_end_seconds=100,
        destination_pod_name="client", destination_pod_namespace="shop", destination_node_name="n1",
        packet_total_count=2, octet_total_count=200, reverse_packet_total_count=3, reverse_octet_total_count=300,
        throughput=9, reverse_throughput=8, reverse_packet_delta_count_from_destination_node=4,
        flow_end_seconds_from_destination_node=100, destination_pod_labels="{}", destination_pod_uid="u1",
    )  # fmt: skip
    assert turned(other) == record


def test_rules_and_the_egress_of_the_direction_that_it_is_not_are_left_out() -> None:
    record = msgspec.structs.replace(
        OF_CLIENT, egress_network_policy_name="out", ingress_network_policy_rule_action=1, egress_name="e", egress_ip="::1",
    )  # fmt: skip
    assert turned(record) == turned(OF_CLIENT)
