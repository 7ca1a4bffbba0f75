"""Sources that the zone of sources has: which connections need it, and which of its addresses is theirs."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.apis.flow import FlowRecord, FlowType
from antrea.engine import Facts
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.service import Service
from antrea.features.flow_export.metadata import PodNetworks, tracked_record
from antrea.features.flow_export.translated_source import TranslatedSources
from antrea.features.proxy.host import NODE_PORT_IPS
from antrea.openflow.fields import CONN_SNAT, HAIRPIN, SERVICE
from antrea.openflow.tracked_connection import TrackedConnection

MARK = 2 | SERVICE.mask | CONN_SNAT.mask
ENDS = {
    "10.2.0.7": ("198.51.100.7", "10.1.0.1", 65521),
    "fd00:2::7": ("2001:db8::7", "fd00:1::1", 65511),
}


def connection(
    port: int, server: str = "10.2.0.7", *, mark: int = MARK, state: str = "ESTABLISHED"
) -> TrackedConnection:
    client, *_ = ENDS[server]
    key = (6, client, port, server, 80, 0)
    return TrackedConnection(key, "169.254.0.252", 30001, client, port, 1, 60, 1, 60, "", mark, 0, state)


def source(port: int, seen: int, server: str = "10.2.0.7") -> str:
    """A line of the zone of sources."""
    client, gateway, zone = ENDS[server]
    return (
        f"tcp,orig=(src={client},dst={server},sport={port},dport=80),"
        f"reply=(src={server},dst={gateway},sport=80,dport={seen}),zone={zone},mark=48,protoinfo=(state=ESTABLISHED)\n"
    )


@pytest.mark.parametrize("server", ENDS)
def test_a_connection_gets_the_source_that_its_pod_sees(server: str) -> None:
    found = TranslatedSources()
    one, other = connection(4000, server), connection(4001, server)
    assert found.lack([one, other])
    found.read([source(4000, 61000, server) + source(4001, 61001, server)])
    seen = [(has.source_seen, has.source_port_seen) for has in map(found.with_seen_source, (one, other))]
    assert seen == [(ENDS[server][1], 61000), (ENDS[server][1], 61001)]
    # traffic of what is known is no reason to read the zone again
    assert not found.lack([one._replace(packets=9), other])
    assert found.lack([one, connection(4002, server)])


@pytest.mark.parametrize("mark", [2, 2 | SERVICE.mask, MARK | HAIRPIN.mask])
def test_what_is_not_translated_for_another_node_stays_as_it_is(mark: int) -> None:
    found, one = TranslatedSources(), connection(4000, mark=mark)
    assert not found.lack([one])
    found.read([source(4000, 61000)])
    assert found.with_seen_source(one) == one


def test_a_source_that_is_gone_or_another_one_is_not_that_of_the_next_connection() -> None:
    found, one = TranslatedSources(), connection(4000)
    found.read([source(4000, 61000)])
    found.with_seen_source(one)
    found.forget([one])
    assert found.lack([one])
    found.read([source(4000, 61007)])
    assert found.with_seen_source(one).source_port_seen == 61007
    found.read([""])
    assert found.with_seen_source(one) == one


def test_the_same_ports_that_begin_anew_are_looked_up_again() -> None:
    found = TranslatedSources()
    found.read([source(4000, 61000)])
    found.with_seen_source(connection(4000))
    assert found.with_seen_source(connection(4000, state="TIME_WAIT")).source_port_seen == 61000
    assert found.lack([connection(4000)])


def cluster(*rows: Any) -> tuple[Facts, PodNetworks]:
    facts = Facts()
    for row in (
        ThisNode("n1", ("10.1.0.0/24",), ("192.0.2.1",)),
        PeerNode("n2", ("10.2.0.0/24",), ("192.0.2.2",), ("192.0.2.2",)),
        *rows,
    ):
        facts.put(row)
    return facts, PodNetworks(facts)


def test_a_connection_from_outside_to_a_pod_of_another_node_has_the_gateway_that_the_pod_sees() -> None:
    service = Service("shop", "db", (), (("TCP", 5432),), port_names=("sql",), node_ports=(30001,))
    facts, networks = cluster(service)
    found = connection(4000)._replace(
        key=(6, "198.51.100.7", 4000, "10.2.0.7", 5432, 0), destination=NODE_PORT_IPS[0],
        source_seen="10.1.0.1", source_port_seen=61000,
    )  # fmt: skip
    assert tracked_record(facts, networks, found, 50) == FlowRecord(
        flow_start_seconds=50, source_ip="198.51.100.7", destination_ip="10.2.0.7", source_transport_port=4000,
        destination_transport_port=5432, protocol_identifier=6, flow_type=int(FlowType.FROM_EXTERNAL),
        proxy_snat_ip="10.1.0.1", proxy_snat_port=61000,
        destination_service_port_name="shop/db:sql", destination_service_port=30001,
    )  # fmt: skip


@pytest.mark.parametrize(
    "differs",
    [
        {"mark": 2 | SERVICE.mask},
        {"mark": MARK | HAIRPIN.mask},
        {"source_seen": "198.51.100.7"},
        {"key": (6, "10.1.0.1", 4000, "10.2.0.7", 80, 0)},
        {"key": (6, "198.51.100.7", 4000, "192.0.2.2", 80, 0)},
    ],
    ids=["not translated", "hairpin", "not known", "from the Node", "to a host"],
)
def test_of_other_connections_without_a_pod_of_the_node_there_is_no_record(differs: dict[str, Any]) -> None:
    facts, networks = cluster()
    found = connection(4000)._replace(source_seen="10.1.0.1")
    assert tracked_record(facts, networks, found, 50) is not None
    assert tracked_record(facts, networks, found._replace(**differs), 50) is None
