"""Which connections are to a port of NodePortLocal, and what their records have of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.flow import FlowRecord, FlowType
from antrea.engine import Facts
from antrea.facts.service import Service
from antrea.features.flow_export.port_local import add_held_port, held_port
from antrea.features.node_port_local.row import HeldPort, PortLocalPod, PortLocalService


@pytest.mark.parametrize(
    ("differs", "port"),
    [
        ({}, 61001), ({"flow_type": FlowType.INTRA_NODE}, 0),
        ({"destination_transport_port": 81}, 0), ({"protocol_identifier": 17}, 0), ({"protocol_identifier": 1}, 0),
        ({"destination_pod_name": "db"}, 0), ({"source_ip": "2001:db8::7"}, 0),
    ],
)  # fmt: skip
def test_a_connection_from_outside_may_be_to_a_port_of_node_port_local(
    differs: dict[str, Any], port: int
) -> None:
    facts = Facts()
    facts.put(HeldPort("shop/web:8080/tcp/IPv4", 61001))
    record = FlowRecord(
        source_ip="203.0.113.7", destination_ip="10.1.0.5", destination_pod_namespace="shop", destination_pod_name="web",
        destination_transport_port=8080, protocol_identifier=6, flow_type=int(FlowType.FROM_EXTERNAL),
    )  # fmt: skip
    assert held_port(facts, msgspec.structs.replace(record, **differs)) == port


@pytest.mark.parametrize(
    ("services", "name", "uid"),
    [(("a",), "shop/a", "u-a"), (("b", "a"), "shop/a|shop/b", ""), ((), "", "")],
)
def test_a_port_of_node_port_local_is_of_all_services_that_give_it(
    services: tuple[str, ...], name: str, uid: str
) -> None:
    facts = Facts()
    facts.put(PortLocalPod("shop", "web", "u", (("app", "web"), ("x", "y")), ("10.1.0.5",), ()))
    for one in services:
        facts.put(PortLocalService("shop", one, (("app", "web"),), (("TCP", 8080),), ("IPv4",)))
        facts.put(Service("shop", one, ("10.96.0.7",), (("TCP", 80),), uid=f"u-{one}"))
    for other, selector, ports in (
        ("other", (("app", "db"),), (("TCP", 8080),)), ("udp", (("app", "web"),), (("UDP", 8080),))
    ):  # fmt: skip
        facts.put(PortLocalService("shop", other, selector, ports, ("IPv4",)))
    record = FlowRecord(
        destination_pod_namespace="shop", destination_pod_name="web", destination_transport_port=8080, protocol_identifier=6,
    )  # fmt: skip
    add_held_port(facts, record, "192.0.2.1", 61001)
    assert (record.destination_service_port_name, record.destination_service_uid) == (name, uid)
    assert (record.destination_service_ip, record.destination_service_port) == ("192.0.2.1", 61001)
