"""What a record says in mode Proxy of who made it, and how it is written."""

from __future__ import annotations

from typing import Literal

import pytest

from antrea.apis.flow import FlowRecord, FlowType, RuleAction
from antrea.config.flow_aggregator import FlowAggregatorConfig, RecordContents
from antrea.flow_aggregator.intake import Intake
from antrea.flow_aggregator.pod_addresses import PodName
from antrea.flow_aggregator.proxy import direction
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import MessageWriter
from antrea.ipfix.template import Contents


@pytest.mark.parametrize(
    ("kind", "source", "destination", "expected"),
    [
        (FlowType.INTER_NODE, "a", "", 1),
        (FlowType.INTER_NODE, "", "b", 0),
        (FlowType.INTER_NODE, "", "", 255),
        (FlowType.TO_EXTERNAL, "a", "", 1),
        (FlowType.FROM_EXTERNAL, "", "b", 0),
        (FlowType.INTRA_NODE, "a", "b", 255),
    ],
)
def test_the_direction_is_that_of_the_node_of_the_record(
    kind: FlowType, source: str, destination: str, expected: int
) -> None:
    record = FlowRecord(flow_type=int(kind), source_pod_name=source, destination_pod_name=destination)
    assert direction(record) == expected


@pytest.mark.parametrize("exporter", ["192.0.2.7", "2001:db8::7"])
@pytest.mark.parametrize("ends", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
@pytest.mark.parametrize("requests", [False, True])
def test_a_proxied_record_has_whose_it_was(exporter: str, ends: tuple[str, str], requests: bool) -> None:
    version6 = ":" in exporter
    record = FlowRecord(
        source_ip=ends[0], destination_ip=ends[1], cluster_id="c1", flow_direction=255,
        original_observation_domain_id=0xFFFFFFFF,
        original_exporter_ipv4="" if version6 else exporter, original_exporter_ipv6=exporter if version6 else "",
        source_pod_labels='{"app":"web"}', destination_pod_labels="{}",
        app_protocol_name="http" if requests else "", http_vals='{"0":{}}' if requests else "",
    )  # fmt: skip
    writer, decoder = MessageWriter(9, proxied=True, contents=Contents(requests=requests)), Decoder()
    for message in writer.templates(0):
        decoder.read(message)
    [(message, _)] = writer.data([record], 0, 4000)
    assert decoder.read(message)[1] == [record]


@pytest.mark.parametrize("mode", ["Aggregate", "Proxy"])
@pytest.mark.parametrize(
    ("contents", "labels"),
    [(RecordContents(pod_labels=True), '{"app":"db"}'), (RecordContents(pod_names=True), "")],
    ids=["labels", "names"],
)
def test_a_denied_record_of_one_node_names_the_pod_of_the_other(
    contents: RecordContents, labels: str, mode: Literal["Aggregate", "Proxy"]
) -> None:
    async def present(*_: object) -> None:
        pass

    intake = Intake(FlowAggregatorConfig(mode=mode, record_contents=contents), "", lambda _: None, present)
    intake._pods._pods = {"10.0.0.2": PodName("shop", "db", "n2", '{"app":"db"}', "u1")}
    record = FlowRecord(
        source_ip="10.0.0.1", destination_ip="10.0.0.2", source_pod_name="web", source_node_name="n1",
        flow_type=int(FlowType.INTER_NODE), egress_network_policy_rule_action=int(RuleAction.DROP),
    )  # fmt: skip
    intake.add_asked(record)
    named = (record.destination_pod_namespace, record.destination_pod_name, record.destination_node_name)
    assert (named, record.destination_pod_labels) == (("shop", "db", "n2"), labels)
    assert (record.source_pod_name, record.source_node_name) == ("web", "n1")
