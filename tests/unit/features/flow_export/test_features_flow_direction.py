"""Which end has opened a connection that tracking has lost and found again by a packet of either end."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.apis.flow import BiflowDirection
from antrea.engine import Facts
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.service import ServiceEndpoint
from antrea.features.flow_export import direction
from antrea.features.flow_export.connection import ConnectionStore
from antrea.features.flow_export.direction import Directions, turned
from antrea.features.flow_export.metadata import PodNetworks, tracked_record
from antrea.openflow.fields import CONN_SNAT, PICKED_UP, SERVICE
from antrea.openflow.tracked_connection import HostOriginal, TrackedConnection

CLIENT, SERVER = "10.1.0.5", "10.1.0.6"
LOST, OPENED = PICKED_UP.mask | 3, 3
TCP, UDP = 6, 17


def connection(
    source_port: int, port: int, mark: int = LOST, *, source: str = CLIENT, server: str = SERVER, **more: Any
) -> TrackedConnection:
    """From the client to the server, unless it says otherwise."""
    protocol = more.pop("protocol", TCP)
    key = (protocol, source, source_port, server, port, 0)
    state = "ESTABLISHED" if protocol == TCP else ""
    found = TrackedConnection(key, server, port, source, source_port, 3, 300, 2, 200, "", mark, 7, state)
    return found._replace(**more)


def answer_first(source_port: int, port: int, mark: int = LOST, **more: Any) -> TrackedConnection:
    """The same connection as the server's packet made it: from the server to the client."""
    return connection(source_port, port, mark, source=SERVER, server=CLIENT, **more)


def decided(directions: Directions, *changed: TrackedConnection, gone: Any = ()) -> list[TrackedConnection]:
    return directions.directed_changes(changed, gone)[0]


def opener(found: TrackedConnection) -> str:
    return found.key[1] if found.is_direction_known else "unknown"


@pytest.mark.parametrize("protocol", [TCP, UDP])
def test_the_direction_is_that_of_the_connection_before_it(protocol: int) -> None:
    directions = Directions(Facts())
    before = connection(45000, 50000, OPENED, protocol=protocol)
    assert decided(directions, before) == [before]
    again = answer_first(50000, 45000, LOST if protocol == TCP else OPENED, protocol=protocol)
    changed, gone = directions.directed_changes([again], [before])
    assert [one.key for one in changed] == [before.key]
    assert gone == []  # it has not ended


def test_it_is_remembered_until_tracking_has_it_again_and_however_often_it_is_lost() -> None:
    directions = Directions(Facts())
    before, again = connection(45000, 50000, OPENED), answer_first(50000, 45000)
    assert directions.directed_changes([before], []) == ([before], [])
    assert directions.directed_changes([], [before]) == ([], [before])
    for _ in range(3):
        assert [one.key for one in decided(directions, again)] == [before.key]
        changed, gone = directions.directed_changes([], [again])
        assert (changed, [one.key for one in gone]) == ([], [before.key])


def test_of_a_connection_that_has_ended_nothing_is_remembered() -> None:
    directions = Directions(Facts())
    decided(directions, connection(45000, 50000, OPENED))
    ended = connection(45000, 50000, OPENED, state="TIME_WAIT")
    decided(directions, gone=[ended])
    assert (directions._opened, directions._lost) == ({}, {})


@pytest.mark.parametrize(
    ("source_port", "port", "expected"),
    [
        (45000, 8080, CLIENT), (8080, 45000, SERVER), (32768, 32767, CLIENT), (32767, 32768, SERVER),
        (45000, 50000, "unknown"), (8080, 9090, "unknown"),
    ],
)  # fmt: skip
def test_without_a_connection_before_ports_of_clients_tell(
    source_port: int, port: int, expected: str
) -> None:
    [found] = decided(Directions(Facts()), connection(source_port, port))
    assert opener(found) == expected


def test_an_end_that_others_have_connected_to_is_the_server() -> None:
    directions = Directions(Facts())
    decided(directions, connection(40001, 50000, OPENED, source="10.1.0.9"))
    assert opener(decided(directions, answer_first(50000, 45000))[0]) == CLIENT
    assert opener(decided(directions, connection(45001, 50000))[0]) == CLIENT


def test_an_endpoint_of_a_service_is_the_server() -> None:
    facts = Facts()
    facts.put(ServiceEndpoint("shop/a", "shop/web", "http", "TCP", SERVER, 50000, "n1", True, True, False))
    directions = Directions(facts)
    assert opener(decided(directions, answer_first(50000, 45000))[0]) == CLIENT
    assert opener(decided(directions, answer_first(50001, 45000))[0]) == "unknown"


@pytest.mark.parametrize(
    ("source_port", "port", "expected"),
    [(45000, 53, CLIENT), (45000, 50000, CLIENT), (5060, 5060, CLIENT), (7000, 8000, CLIENT), (53, 45000, "unknown")],
)  # fmt: skip
def test_a_datagram_opens_a_connection_unless_it_may_be_late(
    source_port: int, port: int, expected: str
) -> None:
    [found] = decided(Directions(Facts()), connection(source_port, port, OPENED, protocol=UDP))
    assert opener(found) == expected


@pytest.mark.parametrize("mark", [SERVICE.mask, CONN_SNAT.mask])
def test_what_is_translated_is_sent_by_the_client(mark: int) -> None:
    directions = Directions(Facts())
    assert opener(decided(directions, connection(8080, 45000, LOST | mark))[0]) == CLIENT
    host = HostOriginal("198.51.100.7", 8080, "192.0.2.1", 30001)
    assert opener(decided(directions, connection(8081, 45000, LOST, host=host))[0]) == CLIENT


def test_a_decision_stands_while_the_connection_is_tracked() -> None:
    directions = Directions(Facts())
    assert opener(decided(directions, answer_first(50000, 45000))[0]) == "unknown"
    decided(directions, connection(40001, 50000, OPENED, source="10.1.0.9"))
    more = answer_first(50000, 45000, packets=9)
    assert opener(decided(directions, more)[0]) == "unknown"
    # the same ports opened anew
    assert (
        opener(decided(directions, connection(50000, 45000, OPENED, source=SERVER, server=CLIENT))[0])
        == SERVER
    )


def test_a_turned_connection_has_the_counts_of_each_end_and_no_rules() -> None:
    found = turned(answer_first(8080, 45000))
    assert found == connection(
        45000, 8080, packets=2, byte_count=200, reply_packets=3, reply_byte_count=300, label=0
    )


def test_memories_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direction, "MAX_LOST", 3)
    monkeypatch.setattr(direction, "MAX_SERVERS", 2)
    directions = Directions(Facts())
    many = [connection(45000, 50000 + number, OPENED) for number in range(9)]
    decided(directions, *many)
    decided(directions, gone=many)
    assert (len(directions._lost), len(directions._servers)) == (3, 2)
    assert not directions._opened
    assert opener(decided(directions, answer_first(50008, 45000))[0]) == CLIENT
    assert opener(decided(directions, answer_first(50000, 45000))[0]) == "unknown"


def test_a_record_says_that_the_direction_is_unknown_and_goes_on_where_it_is_kept() -> None:
    facts = Facts()
    for row in (
        ThisNode("n1", ("10.1.0.0/24",), ("192.0.2.1",)),
        PodInterface("a", "a", "shop", "client", "", (CLIENT,), 5, "i5"),
        PodInterface("b", "b", "shop", "server", "", (SERVER,), 6, "i6"),
    ):
        facts.put(row)
    networks, directions, store = PodNetworks(facts), Directions(facts), ConnectionStore(1, 60, 300)

    def polled(now: float, changed: list[TrackedConnection], gone: list[TrackedConnection]) -> list[Any]:
        found, ended = directions.directed_changes(changed, gone)
        list(store.update(found, ended, now, now, lambda one: tracked_record(facts, networks, one, now)))
        return [
            (one.source_pod_name, one.destination_transport_port, one.biflow_direction, one.flow_end_reason)
            for one in store.due(now + 1, 10)
        ]

    before, known = connection(45000, 50000, OPENED), int(BiflowDirection.INITIATOR)
    assert polled(1, [before], []) == [("client", 50000, known, 2)]
    assert polled(2, [answer_first(50000, 45000)], [before]) == [("client", 50000, known, 2)]
    assert len(store) == 1
    unknown = ("server", 45001, int(BiflowDirection.ARBITRARY), 2)
    assert polled(3, [answer_first(60001, 45001)], []) == [("client", 50000, known, 1), unknown]
