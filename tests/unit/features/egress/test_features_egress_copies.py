"""Which Nodes get copies of connections, from whom they are accepted, and the order of a stream of copies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from wide_pool import wide_pool

from antrea.apis.crd.part import Condition
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.egress import ConnectionCopy, CopySource, Egress, EgressOwner, HeirReport
from antrea.facts.member import GossipMember, PoolMembers, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent import copy_stream
from antrea.features.egress.agent.connection_copy import COPIED, copied_conditions
from antrea.features.egress.agent.copy_stream import (
    BEGIN,
    END,
    Batch,
    IncomingStream,
    OutgoingStream,
    Receipt,
)
from antrea.features.egress.agent.feature import FEATURE

IP = "203.0.113.1"
PACKED = bytes((203, 0, 113, 1))
NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
ROW = Egress("e", "u", IP, pool="p", node="n1", held=IP, copies=True, preferred=("n1", "n3", "n2", "n4"))
MEMBERS = PoolMembers("p", ("n1", "n2", "n3", "n4"), selected=("n1", "n2", "n3", "n4"))
HERE = LocalAddress(IP, "antrea-egress0")
OURS = EgressOwner("e", "n1")
ALL = tuple(GossipMember(name, alive=True) for name in ("n2", "n3", "n4"))
MAJORITY = Quorum(has=True, alive=4, of=4)


def derived(kind: type[Any], *rows: Any) -> list[Any]:
    facts = Facts()
    for row in (AgentConfig(), NODE, wide_pool("p"), MEMBERS, MAJORITY, *ALL, *rows):
        facts.put(row)
    Engine(facts, FEATURE.units).plan()
    return [*facts.all(kind)]


def replaced(row: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(row, **fields)


def test_the_holder_copies_to_the_next_two_of_the_rank() -> None:
    assert derived(ConnectionCopy, ROW, HERE, OURS) == [ConnectionCopy(IP, ("n3", "n2"), whole=True)]


def test_with_blocks_of_ports_only_other_connections_are_copied() -> None:
    row = replaced(ROW, survives=True)
    assert derived(ConnectionCopy, row, HERE, OURS) == [ConnectionCopy(IP, ("n3", "n2"), whole=False)]


def test_nodes_that_are_cordoned_or_have_another_address_of_the_egress_come_last() -> None:
    members = PoolMembers("p", ("n1", "n3"), cordoned=("n2", "n4"), selected=("n1", "n2", "n3", "n4"))
    other = replaced(ROW, ip="203.0.113.2", slot=1, of=2, node="n3", held="203.0.113.2")
    first = replaced(ROW, of=2)
    owner = EgressOwner(other.key, "n3")
    copies = derived(ConnectionCopy, members, first, other, HERE, OURS, owner)
    assert copies == [ConnectionCopy(IP, ("n2", "n4"), whole=True)]


@pytest.mark.parametrize(
    "rows",
    [
        (replaced(ROW, copies=False), HERE, OURS),
        (ROW, OURS),
        (ROW, HERE, OURS, Quorum(has=False, alive=1, of=4)),
        (replaced(ROW, pool=""), HERE),
        # another Node has taken it over
        (replaced(ROW, node="n3"), HERE, EgressOwner("e", "n3")),
    ],
    ids=["not asked for", "not here", "minority", "no pool", "taken over"],
)
def test_nothing_is_copied(rows: tuple[Any, ...]) -> None:
    assert derived(ConnectionCopy, *rows) == []


def test_a_node_that_hands_over_copies_to_the_next_holder_alone() -> None:
    copies = derived(ConnectionCopy, ROW, HERE, EgressOwner("e", "n4"))
    assert copies == [ConnectionCopy(IP, ("n4",), whole=True)]


@pytest.mark.parametrize(
    ("rows", "source"),
    [
        ((replaced(ROW, node="n2"), EgressOwner("e", "n2")), "n2"),
        # the one that has it, while it hands it over, to another one or to this one
        ((replaced(ROW, node="n2"), EgressOwner("e", "n3")), "n2"),
        ((replaced(ROW, node="n2"), EgressOwner("e", "n1")), "n2"),
        # the next one, when that is dead
        ((replaced(ROW, node="n2"), EgressOwner("e", "n3"), GossipMember("n2", alive=False)), "n3"),
        # nobody's, once this Node has it
        ((ROW, HERE, OURS), ""),
        ((replaced(ROW, node="n2"), OURS, GossipMember("n2", alive=False)), ""),
        ((replaced(ROW, node="n2", copies=False), EgressOwner("e", "n2")), ""),
    ],
)
def test_copies_are_accepted_from_the_holder_alone(rows: tuple[Any, ...], source: str) -> None:
    assert derived(CopySource, *rows) == ([CopySource(IP, source)] if source else [])


@pytest.mark.parametrize(
    ("reports", "status", "message"),
    [
        ((), "False", "Nodes n3, n2 have not reported yet"),
        (
            (HeirReport("n3", True, False, False),),
            "True",
            "Node n3 has the connections; Node n2 has not reported yet",
        ),
        (
            (HeirReport("n3", True, False, False), HeirReport("n2", True, False, False)),
            "True",
            "Nodes n3, n2 have the connections",
        ),
        (
            (HeirReport("n3", True, True, True), HeirReport("n2", True, True, False)),
            "False",
            "Node n3 does not have all of them: its table of connections is full; Node n2 does not have all of them: its kernel refuses some",
        ),
    ],
)
def test_the_condition_names_who_has_the_connections(
    reports: tuple[HeirReport, ...], status: str, message: str
) -> None:
    facts = Facts()
    for row in (ROW, ConnectionCopy(IP, ("n3", "n2"), whole=True), *reports):
        facts.put(row)
    (condition,) = copied_conditions(facts, ROW)
    assert (condition.type, condition.status, condition.message) == (COPIED, status, message)


def test_the_condition_goes_with_the_annotation() -> None:
    assert copied_conditions(Facts(), replaced(ROW, copies=False, copied=True)) == (Condition(COPIED),)
    assert copied_conditions(Facts(), replaced(ROW, copies=False)) == ()


def record(port: int, state: int = 3) -> bytes:
    return bytes((6, state, 10, 0, 0, 1, 198, 51, 100, 1)) + port.to_bytes(2, "big") * 3


def loaded(*ports: int) -> OutgoingStream:
    """A stream whose first snapshot has these, of which nothing is sent yet."""
    stream = OutgoingStream(7)
    stream.follow({PACKED})
    stream.begin(PACKED)
    stream.load(PACKED, [record(port) for port in ports])
    return stream


def test_a_stream_begins_with_a_snapshot() -> None:
    assert [*loaded(1, 2).batches()] == [
        Batch(7, 0, PACKED, BEGIN),
        Batch(7, 1, PACKED, END, record(1) + record(2)),
    ]


def test_a_long_snapshot_is_sent_in_parts_without_what_ended_meanwhile() -> None:
    stream = loaded(*range(copy_stream.CHUNK + 2))
    first = [*stream.batches()]
    assert [(batch.mark, len(batch.put) // 16) for batch in first] == [(BEGIN, 0), (0, copy_stream.CHUNK)]
    stream.change(PACKED, record(copy_stream.CHUNK, 0), ended=True)
    assert [(batch.mark, batch.put, batch.ended) for batch in stream.batches()] == [
        (0, b"", record(copy_stream.CHUNK, 0)),
        (END, record(copy_stream.CHUNK + 1), b""),
    ]
    assert not stream.busy


def test_a_connection_that_began_and_ended_between_two_batches_is_not_sent() -> None:
    stream = loaded()
    [*stream.batches()]
    stream.change(PACKED, record(1), ended=False)
    stream.change(PACKED, record(2), ended=False)
    stream.change(PACKED, record(1), ended=True)
    stream.change(PACKED, record(3), ended=True)
    assert [*stream.batches()] == [Batch(7, 2, PACKED, 0, record(2), record(3))]


def test_too_many_changes_are_replaced_by_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_stream, "MAX_PENDING", 3)
    stream = loaded()
    [*stream.batches()]
    for port in range(4):
        stream.change(PACKED, record(port), ended=False)
    assert (stream.due, [*stream.batches()]) == ({PACKED}, [])


def test_an_address_that_is_not_copied_any_more_is_emptied_at_the_receiver() -> None:
    stream = loaded(1)
    [*stream.batches()]
    stream.follow(())
    assert [*stream.batches()] == [Batch(7, 2, PACKED, BEGIN | END)]


def test_an_idle_stream_shows_that_it_lives() -> None:
    stream = loaded()
    [*stream.batches()]
    assert [*stream.batches(alive=True)] == [Batch(7, 2)]


def verdicts(*batches: Batch) -> list[tuple[bool, bool, str]]:
    incoming = IncomingStream()
    return [(one.accept, one.asks, one.why) for one in map(incoming.receive, batches)]


ACCEPTED = (True, False, "")


def test_a_receiver_accepts_a_stream_in_order_and_each_batch_once() -> None:
    assert verdicts(Batch(7, 0), Batch(7, 1), Batch(7, 1), Batch(7, 0), Batch(7, 2)) == [
        *(ACCEPTED, ACCEPTED),
        *((False, False, "replayed"), (False, False, "replayed")),
        ACCEPTED,
    ]


def test_a_stream_with_a_gap_ends_and_another_one_is_asked_for() -> None:
    assert verdicts(Batch(7, 0), Batch(7, 2), Batch(7, 3), Batch(8, 0), Batch(7, 3)) == [
        ACCEPTED,
        (False, True, "gap"),
        # whatever arrives of it later
        (False, False, "stale"),
        ACCEPTED,
        (False, False, "stale"),
    ]


def test_the_middle_of_a_stream_is_not_accepted() -> None:
    gap = (False, True, "gap")
    assert verdicts(Batch(7, 5)) == [gap]
    # nor does it end the one that is under way
    assert verdicts(Batch(7, 0), Batch(9, 5), Batch(7, 1)) == [ACCEPTED, gap, ACCEPTED]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        copy_stream.encode_copy(Batch(7, 0, PACKED, 0, b"short")),
        copy_stream.encode_copy(Batch(7, 0, b"\1\2", 0, bytes(16))),
        copy_stream.encode_copy(Batch(7, 0, PACKED, 9)),
        copy_stream.encode_copy(Receipt(-1, asks=True, whole=True, refused=0, full=False)),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(Invalid):
        copy_stream.decode_copy(data)


def test_messages_are_read_as_they_were_written() -> None:
    for message in (
        Batch(7, 0, PACKED, BEGIN, record(1), record(2)),
        Receipt(7, asks=False, whole=True, refused=3, full=True),
    ):
        assert copy_stream.decode_copy(copy_stream.encode_copy(message)) == message
