"""Connections that the host has translated: of which it is asked, once, and what their records have of it."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.apis.flow import FlowRecord, FlowType
from antrea.engine import Facts
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.service import Service
from antrea.features.flow_export.connection import ConnectionStore
from antrea.features.flow_export.host_original import HostOriginals
from antrea.features.flow_export.metadata import PodNetworks, tracked_record
from antrea.features.node_port_local.row import HeldPort, PortLocalPod, PortLocalService
from antrea.openflow.fields import SERVICE
from antrea.openflow.tracked_connection import HostOriginal, TrackedConnection

FROM_GATEWAY = 2
NODE = ("192.0.2.1", "2001:db8:2::1")
SERVICE_ROW = Service(
    "shop", "db", ("10.96.0.9", "fd00:96::9"), (("TCP", 80), ("UDP", 80)), port_names=("tcp", "udp"),
    node_ports=(30001, 30001), uid="u",
)  # fmt: skip
IPV4 = (("198.51.100.7", "10.1.0.1"), ("10.1.0.6", "10.2.0.7"), NODE[0])
IPV6 = (("2001:db8::7", "fd00:1::1"), ("fd00:1::6", "fd00:2::7"), NODE[1])
"""Client and gateway, a Pod of this Node and one of another, and what the client asked."""


def connection(
    source: str = "10.1.0.1", server: str = "10.1.0.6", port: int = 61000, **more: Any
) -> TrackedConnection:
    key = (6, source, port, server, 8080, 0)
    found = TrackedConnection(
        key, server, 8080, source, port, 1, 60, 1, 60, "", FROM_GATEWAY, 0, "ESTABLISHED"
    )
    return found._replace(**more)


def cluster(*rows: Any) -> tuple[Facts, PodNetworks]:
    facts = Facts()
    for row in (
        ThisNode("n1", ("10.1.0.0/24", "fd00:1::/64"), NODE),
        PeerNode("n2", ("10.2.0.0/24", "fd00:2::/64"), ("192.0.2.2",), ("192.0.2.2",)),
        PodInterface("db", "db", "shop", "db", "", ("10.1.0.6", "fd00:1::6"), 6, "i6"),
        PodInterface("web", "web", "shop", "web", "", ("10.1.0.5",), 5, "i5"),
        *(LocalAddress(ip, "eth0") for ip in NODE),
        *(LocalAddress(ip, "antrea-gw0") for ip in ("10.1.0.1", "fd00:1::1")),
        SERVICE_ROW,
        *rows,
    ):
        facts.put(row)
    return facts, PodNetworks(facts)


def told(facts: Facts, found: TrackedConnection, *ends: Any) -> TrackedConnection:
    """With what the host has told."""
    originals = HostOriginals(facts)
    assert originals.lacking([found]) == [found]
    originals.store([found], [HostOriginal(*ends) if ends else None])
    return originals.with_original(found)


@pytest.mark.parametrize("protocol", [6, 17])
@pytest.mark.parametrize(("sources", "pods", "asked"), [IPV4, IPV6])
@pytest.mark.parametrize("remote", [False, True])
def test_a_client_of_a_node_port_that_another_proxy_serves_is_the_source(
    protocol: int, sources: tuple[str, str], pods: tuple[str, str], asked: str, remote: bool
) -> None:
    """As upstream's agent has it: proxySnat is what the Pod sees, and there is no Pod of the source."""
    facts, networks = cluster()
    (client, gateway), server = sources, pods[remote]
    found = connection(gateway, server)
    found = found._replace(key=(protocol, *found.key[1:]), state="" if protocol == 17 else "ESTABLISHED")
    record = tracked_record(facts, networks, told(facts, found, client, 40000, asked, 30001), 50)
    pod = ("", "", "") if remote else ("shop", "db", "n1")
    assert record == FlowRecord(
        flow_start_seconds=50, source_ip=client, source_transport_port=40000, destination_ip=server,
        destination_transport_port=8080, protocol_identifier=protocol, flow_type=int(FlowType.FROM_EXTERNAL),
        proxy_snat_ip=gateway, proxy_snat_port=61000, destination_service_port=30001, destination_service_uid="u",
        destination_service_port_name="shop/db:tcp" if protocol == 6 else "shop/db:udp",
        destination_service_ip=asked, destination_cluster_ip=asked,
        destination_pod_namespace=pod[0], destination_pod_name=pod[1], destination_node_name=pod[2],
    )  # fmt: skip


def test_where_the_client_is_kept_only_the_service_is_added() -> None:
    facts, networks = cluster()
    found = connection("198.51.100.7", port=40000)
    for ip, port in ((NODE[0], 30001), ("10.96.0.9", 80)):
        record = tracked_record(facts, networks, told(facts, found, "198.51.100.7", 40000, ip, port), 50)
        assert record is not None
        assert (record.source_ip, record.source_transport_port) == ("198.51.100.7", 40000)
        assert (record.proxy_snat_ip, record.proxy_snat_port) == ("", 0)
        assert (record.destination_service_port_name, record.destination_service_ip) == ("shop/db:tcp", ip)
    assert tracked_record(facts, networks, told(facts, found, "198.51.100.7", 40000, NODE[0], 30002), 50)


@pytest.mark.parametrize("source", ["192.0.2.1", "10.1.0.1", "127.0.0.1"])
def test_what_begins_at_the_node_keeps_its_source(source: str) -> None:
    facts, networks = cluster()
    probe = connection()
    plain = tracked_record(facts, networks, probe, 50)
    assert plain is not None
    assert told(facts, probe, "10.1.0.1", 61000, "10.1.0.6", 8080) == probe
    record = tracked_record(facts, networks, told(facts, probe, source, 40000, "10.96.0.9", 80), 50)
    assert record is not None
    assert (record.source_ip, record.source_transport_port, record.flow_type) == (
        plain.source_ip, plain.source_transport_port, plain.flow_type,
    )  # fmt: skip
    assert record.destination_service_port_name == "shop/db:tcp"
    elsewhere = told(facts, connection(server="10.2.0.7"), source, 40000, "10.96.0.9", 80)
    assert tracked_record(facts, networks, elsewhere, 50) is None


def test_a_pod_that_asks_for_a_node_port_is_named() -> None:
    facts, networks = cluster()
    record = tracked_record(facts, networks, told(facts, connection(), "10.1.0.5", 40000, NODE[0], 30001), 50)
    assert record is not None
    assert (record.source_pod_name, record.flow_type) == ("web", FlowType.INTRA_NODE)
    assert (record.source_ip, record.proxy_snat_ip) == ("10.1.0.5", "10.1.0.1")


def test_a_port_of_node_port_local_comes_before_a_node_port() -> None:
    facts, networks = cluster(
        HeldPort("shop/db:8080/tcp/IPv4", 61001),
        PortLocalPod("shop", "db", "u", (("app", "db"),), ("10.1.0.6",), ()),
        PortLocalService("shop", "db", (("app", "db"),), (("TCP", 8080),), ("IPv4",)),
    )
    found = connection("198.51.100.7", port=40000)
    for port, name in ((61001, "shop/db"), (30001, "shop/db:tcp")):
        record = tracked_record(facts, networks, told(facts, found, "198.51.100.7", 40000, NODE[0], port), 50)
        assert record is not None
        assert (record.destination_service_port_name, record.destination_service_port) == (name, port)


@pytest.mark.parametrize(
    "differs",
    [
        {"mark": 1},
        {"mark": 3},
        {"mark": FROM_GATEWAY | SERVICE.mask},
        {"key": (1, "10.1.0.1", 0, "10.1.0.6", 0, 7)},
    ],
    ids=["from a tunnel", "from a Pod", "of a Service of the switch", "ICMP"],
)
def test_the_host_is_not_asked_of_what_it_cannot_have_translated(differs: dict[str, Any]) -> None:
    facts, _ = cluster()
    originals = HostOriginals(facts)
    assert originals.lacking([connection(**differs)]) == []
    assert originals.with_original(connection(**differs)) == connection(**differs)


def test_the_host_is_asked_once_of_a_connection_whatever_it_has_told() -> None:
    facts, _ = cluster()
    originals = HostOriginals(facts)
    one, other = connection(port=61000), connection(port=61001)
    originals.store([one, other], [HostOriginal("198.51.100.7", 40000, NODE[0], 30001), None])
    assert originals.lacking([one._replace(packets=2), other._replace(state="TIME_WAIT")]) == []
    assert originals.with_original(one._replace(packets=2)).client == ("198.51.100.7", 40000)
    assert originals.lacking([one, connection(port=61002)]) == [connection(port=61002)]
    originals.forget([one])
    assert originals.lacking([one]) == [one]
    assert originals.with_original(one) == one


@pytest.mark.parametrize("states", [("ESTABLISHED", "TIME_WAIT"), ("TIME_WAIT",)])
def test_the_same_ports_that_begin_anew_may_have_another_client(states: tuple[str, ...]) -> None:
    facts, _ = cluster()
    originals = HostOriginals(facts)
    for state in states:
        if lacking := originals.lacking([connection(state=state)]):
            originals.store(lacking, [HostOriginal("198.51.100.7", 40000, NODE[0], 30001)])
    assert originals.with_original(connection(state="TIME_WAIT")).client == ("198.51.100.7", 40000)
    assert originals.lacking([connection()]) == [connection()]
    originals.store([connection()], [HostOriginal("198.51.100.8", 40001, NODE[0], 30001)])
    assert originals.lacking([connection()]) == []
    assert originals.with_original(connection()).client == ("198.51.100.8", 40001)


def test_connections_of_clients_that_share_a_record_have_ports_of_their_own() -> None:
    facts, networks = cluster()
    originals = HostOriginals(facts)
    both = [connection(port=61000), connection(port=61001)]
    originals.store(both, [HostOriginal("198.51.100.7", port, NODE[0], 30001) for port in (40000, 40001)])
    found = [originals.with_original(one) for one in both]
    assert found[0].kind == found[1].kind
    elsewhere = found[0]._replace(host=HostOriginal("198.51.100.8", 40000, NODE[0], 30001))
    other_port = found[0]._replace(host=HostOriginal("198.51.100.7", 40000, NODE[0], 30002))
    assert len({one.kind for one in (found[0], elsewhere, other_port, both[0])}) == 4
    shared = tracked_record(facts, networks, found[0], 50)
    store = ConnectionStore(1, 1, 60)
    assert not list(store.update(found, (), 1, 50, lambda _: shared))
    ports = [(one.source_transport_port, one.proxy_snat_port) for one in store.due(3, 9)]
    assert sorted(ports) == [(40000, 61000), (40001, 61001)]
