"""Which connections are cut, what is kept of them, and what happens while the switch cannot be asked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_world import (
    NODE,
    PIPELINE,
    addresses,
    applied,
    engine_of,
    interface,
    member,
    peer,
    policy,
    rule,
)

from antrea.apis.annotation import FLUSH, ON_DENY
from antrea.engine import Engine, Facts, Pace
from antrea.errors import Refused, Unavailable
from antrea.facts.ovs import OvsPort
from antrea.features.network_policy.agent.connection_flush import FlushedConnection, InspectConnections
from antrea.features.network_policy.agent.feature import FEATURE
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent_part import connection_flush
from antrea.features.network_policy.agent_part.connection_flush import ConnectionFlusher
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.vswitch.conntrack import Tracked, tracked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from antrea.engine import Sink

POD = interface("web", 7, "10.10.0.7")
LINE = (
    "{},orig=(src={},dst=10.10.0.7,{}),reply=(src=10.10.0.7,dst={}),zone=65520,protoinfo=(state=ESTABLISHED)"
)


def line(source: str, protocol: str = "tcp", ends: str = "sport=40000,dport=80") -> str:
    return LINE.format(protocol, source, ends, source)


DENIED = [line(f"10.10.1.{number}") for number in (1, 2, 3)]
PING = line("10.10.1.1", "icmp", "id=9,type=8,code=0")
ALLOWED, STRANGER = line("10.10.1.9"), line("10.10.1.1").replace("10.10.0.7", "10.10.0.8")


class Switch:
    """Isolates the Pod from all but one; away for so many questions."""

    def __init__(self, away: int = 0, refuses: str = "") -> None:
        self.refuses = refuses
        self.lines = [*DENIED, PING, ALLOWED, STRANGER]
        self.away = away
        self.asked: list[str] = []
        self.forgotten: list[str] = []

    async def connections(self, zone: int) -> list[Tracked]:
        self.away -= 1
        if self.away >= 0:
            raise Unavailable("control socket of ovs-vswitchd")
        return [one for text in self.lines if (one := tracked(zone, text))]

    async def forget(self, found: list[Tracked]) -> None:
        self.forgotten += [one.text for one in found]

    async def trace(self, flow: str) -> str:
        self.asked.append(flow)
        if self.refuses and self.refuses in flow:
            raise Refused([flow], "syntax error")
        out = " -> output port is 7\n" if "10.10.1.9" in flow else "drop\n"
        return f"{PIPELINE.ids['IngressDefaultRule']}. priority 200\n    {out}"

    async def apply(self, put: Sequence[Flow], drop: Sequence[Flow]) -> None:
        """As a sink of flows: all is taken."""

    async def resync(self, entries: Sequence[Flow]) -> None:
        """The same."""

    async def sweep(self, category: int) -> None:
        """The same."""


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    return tmp_path / "severed"


@contextlib.asynccontextmanager
async def cut(switch: Switch, keep: Path) -> AsyncIterator[Engine]:
    """The policy has come, and what follows from that is done."""
    facts, _ = engine_of(
        NODE, POD, OvsPort("gw", "gateway", 2, "aa:aa:aa:aa:aa:aa"), *applied("g", member("web"))
    )
    plain = policy("p", "g", rule("In", peer("nobody"))).policy
    meta = msgspec.structs.replace(plain.metadata, annotations={ON_DENY: FLUSH})
    facts.put(SentPolicy(msgspec.structs.replace(plain, metadata=meta)))
    found = ConnectionFlusher(facts, "gw", switch, switch, keep)
    sinks: dict[type, Sink] = dict.fromkeys((Flow, Group, Meter), switch)

    async def look(act: InspectConnections) -> None:
        await found.flush(engine, act)

    engine = Engine(facts, FEATURE.units, sinks, {InspectConnections: look}, pace=Pace(first=0.01))
    task = asyncio.create_task(engine.run())
    try:
        await asyncio.wait_for(engine.quiet(), 60)
        yield engine
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


ENDS = "ct_nw_src={},ct_nw_dst=10.10.0.7,ct_nw_proto={}"
FORGOTTEN = [
    *(ENDS.format(f"10.10.1.{number}", 6) + ",ct_tp_src=40000,ct_tp_dst=80" for number in (1, 2, 3)),
    ENDS.format("10.10.1.1", 1) + ",icmp_id=9,icmp_type=8,icmp_code=0",
]


async def test_cutting_ends_what_is_forbidden_to_the_pod_and_nothing_else(keep: Path) -> None:
    switch = Switch()
    async with cut(switch, keep) as engine:
        assert switch.forgotten == FORGOTTEN
        assert len(switch.asked) == 5
        kept = [row.connection.source for row in engine.facts.all(FlushedConnection)]
        assert sorted(kept) == ["10.10.1.1", "10.10.1.2", "10.10.1.3"]
        assert not engine.errors.counts


TO_SERVICE = "tcp,orig=(src={},dst=10.96.0.10,sport=40000,dport=80),reply=(src=10.10.0.7,dst={},sport=8080,dport=40000),zone=65520"


async def test_cutting_judges_a_connection_to_a_service_by_its_endpoint(keep: Path) -> None:
    """It is forgotten by the Service's address, and its Endpoint stays cut from the client."""
    switch = Switch()
    switch.lines = [TO_SERVICE.format(ip, ip) for ip in ("10.10.1.1", "10.10.1.9")]
    async with cut(switch, keep) as engine:
        assert switch.forgotten == [
            "ct_nw_src=10.10.1.1,ct_nw_dst=10.96.0.10,ct_nw_proto=6,ct_tp_src=40000,ct_tp_dst=80"
        ]
        assert [row.connection for row in engine.facts.all(FlushedConnection)] == [
            ("TCP", "10.10.1.1", "10.10.0.7", 40000, 8080)
        ]
        ends = [flow.rpartition("nw_dst=")[2] for flow in switch.asked]
        assert ends == ["10.10.0.7,tcp_src=40000,tcp_dst=8080"] * 2


async def test_cutting_asks_of_a_client_here_which_service_it_has_asked_too(keep: Path) -> None:
    """What its Endpoint may have, rules on Services may forbid."""
    switch = Switch()
    switch.lines = [
        "tcp,orig=(src=10.10.0.7,dst=10.96.0.10,sport=40000,dport=80),reply=(src=10.10.1.9,dst=10.10.0.7,sport=8080,dport=40000)"
    ]
    async with cut(switch, keep):
        assert switch.forgotten == []
        ends = [flow.rpartition("nw_dst=")[2] for flow in switch.asked]
        assert ends == [
            "10.10.1.9,tcp_src=40000,tcp_dst=8080",
            "10.96.0.10,tcp_src=40000,tcp_dst=80,dp_hash=0x1",
        ]


async def test_cutting_keeps_the_latest_only(keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_flush, "MAX_CONNECTIONS", 2)
    async with cut(switch := Switch(), keep) as engine:
        assert switch.forgotten == FORGOTTEN
        kept = [row.connection.source for row in engine.facts.all(FlushedConnection)]
        assert sorted(kept) == ["10.10.1.2", "10.10.1.3"]


async def test_cutting_counts_a_connection_that_is_cut_again_as_a_late_one(
    keep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_flush, "MAX_CONNECTIONS", 2)
    switch = Switch()
    switch.lines = DENIED[:2]
    async with cut(switch, keep) as engine:
        for number, again in enumerate((DENIED[0], DENIED[2])):
            switch.lines = [again]
            for row in addresses("nobody", member(f"peer-{number}", f"10.10.2.{number}")):
                engine.facts.put(row)
            await asyncio.wait_for(engine.quiet(), 60)
        kept = [row.connection.source for row in engine.facts.all(FlushedConnection)]
        assert sorted(kept) == ["10.10.1.1", "10.10.1.3"]


async def test_cutting_goes_on_after_a_connection_that_the_switch_does_not_judge(keep: Path) -> None:
    async with cut(switch := Switch(refuses="nw_src=10.10.1.2,"), keep) as engine:
        assert switch.forgotten == [FORGOTTEN[0], *FORGOTTEN[2:]]
        kept = [row.connection.source for row in engine.facts.all(FlushedConnection)]
        assert sorted(kept) == ["10.10.1.1", "10.10.1.3"]
        assert not engine.errors.counts


async def test_cutting_asks_a_switch_that_is_away_again(keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_flush, "PAUSE", 0.01)
    async with cut(switch := Switch(away=3), keep) as engine:
        assert switch.forgotten == FORGOTTEN
        assert not engine.errors.counts


async def test_what_one_agent_cut_the_next_one_keeps_cut_from_its_start(keep: Path) -> None:
    async with cut(switch := Switch(), keep) as engine:
        rows = {row.key: row for row in engine.facts.all(FlushedConnection)}
    facts = Facts()
    ConnectionFlusher(facts, "gw", switch, switch, keep)
    assert {row.key: row for row in facts.all(FlushedConnection)} == rows
    assert len(rows) == len(DENIED)


@pytest.fixture
def rows(keep: Path) -> list[FlushedConnection]:
    """What an agent has left in the file."""

    async def one_agent() -> list[FlushedConnection]:
        async with cut(Switch(), keep) as engine:
            return list(engine.facts.all(FlushedConnection))

    return asyncio.run(one_agent())


def test_no_octet_of_the_file_of_cut_connections_can_end_a_start_or_lose_more_than_its_line(
    keep: Path, rows: list[FlushedConnection]
) -> None:
    whole = keep.read_bytes()
    for at, before in enumerate(whole):
        for octet in {0, 10, 0xFF, before ^ 1} - {before}:
            keep.write_bytes(whole[:at] + bytes((octet,)) + whole[at + 1 :])
            facts = Facts()
            ConnectionFlusher(facts, "gw", Switch(), Switch(), keep)
            found = set(facts.all(FlushedConnection))
            assert found < set(rows)
            # a line feed that is none any more joins two lines
            assert len(rows) - len(found) <= 1 + (before == 10)


def test_a_cut_connection_that_is_damaged_is_told_and_its_file_kept_aside(
    keep: Path, rows: list[FlushedConnection], caplog: pytest.LogCaptureFixture
) -> None:
    spoilt = keep.read_bytes().replace(b"10.10.1.2", b"10.10.1.\xff", 1)
    keep.write_bytes(spoilt)
    facts = Facts()
    ConnectionFlusher(facts, "gw", Switch(), Switch(), keep)
    aside = keep.with_name("severed.damaged")
    assert aside.read_bytes() == spoilt
    assert [vars(one)["fields"] for one in caplog.records if "damaged" in one.message] == [
        {"path": keep, "lines": 1, "first": 2, "kept": 2, "aside": aside}
    ]
    assert {row for row in rows if row.connection.source != "10.10.1.2"} == set(facts.all(FlushedConnection))


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x93\x01", b"[" * 10_000 + b"\n"])
def test_a_file_of_cut_connections_that_cannot_be_read_is_as_good_as_none(keep: Path, data: bytes) -> None:
    keep.write_bytes(data)
    switch, facts = Switch(), Facts()
    ConnectionFlusher(facts, "gw", switch, switch, keep)
    assert not list(facts.all(FlushedConnection))


async def test_cutting_goes_on_where_nothing_can_be_kept(tmp_path: Path) -> None:
    async with cut(switch := Switch(), tmp_path / "none" / "severed") as engine:
        assert switch.forgotten == FORGOTTEN
        assert not engine.errors.counts
