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

from antrea.agent import cutting
from antrea.agent.cutting import Cutting
from antrea.apis.annotation import FLUSH, ON_DENY
from antrea.engine import Engine, Facts, Pace
from antrea.errors import Refused, Unavailable
from antrea.facts.ovs import OvsPort
from antrea.features.network_policy.agent import FEATURE
from antrea.features.network_policy.cut import Look, Severed
from antrea.features.network_policy.sent import SentPolicy
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.ovs_conntrack import Tracked, tracked

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
    plain = policy("p", "g", rule("In", peer("nobody"))).found
    meta = msgspec.structs.replace(plain.metadata, annotations={ON_DENY: FLUSH})
    facts.put(SentPolicy(msgspec.structs.replace(plain, metadata=meta)))
    found = Cutting(facts, "gw", switch, switch, keep)
    sinks: dict[type, Sink] = dict.fromkeys((Flow, Group, Meter), switch)

    async def look(act: Look) -> None:
        await found.look(engine, act)

    engine = Engine(facts, FEATURE.units, sinks, {Look: look}, pace=Pace(first=0.01))
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
        kept = [row.connection.source for row in engine.facts.all(Severed)]
        assert sorted(kept) == ["10.10.1.1", "10.10.1.2", "10.10.1.3"]
        assert not engine.errors.counts


async def test_cutting_keeps_the_latest_only(keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "MOST", 2)
    async with cut(switch := Switch(), keep) as engine:
        assert switch.forgotten == FORGOTTEN
        kept = [row.connection.source for row in engine.facts.all(Severed)]
        assert sorted(kept) == ["10.10.1.2", "10.10.1.3"]


async def test_cutting_counts_a_connection_that_is_cut_again_as_a_late_one(
    keep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "MOST", 2)
    switch = Switch()
    switch.lines = DENIED[:2]
    async with cut(switch, keep) as engine:
        for number, again in enumerate((DENIED[0], DENIED[2])):
            switch.lines = [again]
            for row in addresses("nobody", member(f"peer-{number}", f"10.10.2.{number}")):
                engine.facts.put(row)
            await asyncio.wait_for(engine.quiet(), 60)
        kept = [row.connection.source for row in engine.facts.all(Severed)]
        assert sorted(kept) == ["10.10.1.1", "10.10.1.3"]


async def test_cutting_goes_on_after_a_connection_that_the_switch_does_not_judge(keep: Path) -> None:
    async with cut(switch := Switch(refuses="nw_src=10.10.1.2,"), keep) as engine:
        assert switch.forgotten == [FORGOTTEN[0], *FORGOTTEN[2:]]
        kept = [row.connection.source for row in engine.facts.all(Severed)]
        assert sorted(kept) == ["10.10.1.1", "10.10.1.3"]
        assert not engine.errors.counts


async def test_cutting_asks_a_switch_that_is_away_again(keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "PAUSE", 0.01)
    async with cut(switch := Switch(away=3), keep) as engine:
        assert switch.forgotten == FORGOTTEN
        assert not engine.errors.counts


async def test_what_one_agent_cut_the_next_one_keeps_cut_from_its_start(keep: Path) -> None:
    async with cut(switch := Switch(), keep) as engine:
        rows = {row.key: row for row in engine.facts.all(Severed)}
    facts = Facts()
    Cutting(facts, "gw", switch, switch, keep)
    assert {row.key: row for row in facts.all(Severed)} == rows
    assert len(rows) == len(DENIED)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x93\x01"])
def test_a_file_of_cut_connections_that_cannot_be_read_is_as_good_as_none(keep: Path, data: bytes) -> None:
    keep.write_bytes(data)
    switch, facts = Switch(), Facts()
    Cutting(facts, "gw", switch, switch, keep)
    assert not list(facts.all(Severed))


async def test_cutting_goes_on_where_nothing_can_be_kept(tmp_path: Path) -> None:
    async with cut(switch := Switch(), tmp_path / "none" / "severed") as engine:
        assert switch.forgotten == FORGOTTEN
        assert not engine.errors.counts
