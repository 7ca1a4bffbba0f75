"""Small bundles that go to the switch without ovs-ofctl leave the same flows as with it, whole or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from antrea.errors import Refused, Unavailable
from antrea.openflow import action, match, tables
from antrea.openflow.cookie import Category
from antrea.openflow.fields import CONJUNCTION_SHARE
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.flow_mod import flow_mod
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.tables import ANTREA_POLICY_EGRESS_RULE, INGRESS_RULE
from antrea.outside.vswitch.flow_bundle import MAX_FLOWS, commit
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

PIPELINE = Pipeline.realize(tables.TABLES)
ROUND = 7
flow = flows_of(Category.NETWORK_POLICY)
PARTS = [action.conjunction(5, 2, 3), action.conjunction(70_000, 1, 2)]
FLOWS = tuple(
    flow(table, 14_000 + number, one, then=()).with_parts(PARTS[: 1 + number % 2])
    for number, (table, one) in enumerate(
        (table, side(ip))
        for table in (ANTREA_POLICY_EGRESS_RULE, INGRESS_RULE)
        for side in (match.src, match.dst)
        for ip in ("203.0.113.7", "2001:db8::7")
    )
)
OTHERS = (
    flow(INGRESS_RULE, 200, match.src("10.0.0.0/8"), then=()).with_parts(PARTS),
    flow(INGRESS_RULE, 200, match.src("10.0.0.1"), CONJUNCTION_SHARE.within(0, 1), then=()).with_parts(PARTS),
    flow(INGRESS_RULE, 200, match.src("10.0.0.1"), then=()),
    flow(INGRESS_RULE, 200, match.tcp, match.tp_dst(80), then=()).with_parts(PARTS),
)
BAD = msgspec.structs.replace(FLOWS[0], priority=9, actions=("conjunction(9,1/1)",))


@pytest.fixture
def socket(ovs: OvsBridge) -> Path:
    ovs.clear()
    return ovs.process.directory / "br-int.mgmt"


def mods(*flows: Flow, put: bool = True) -> list[bytes]:
    return [made for one in flows if (made := flow_mod(one, PIPELINE, ROUND, put=put))]


async def test_flows_are_the_same_as_by_ovs_ofctl(ovs: OvsBridge, socket: Path) -> None:
    assert len(mods(*FLOWS)) == len(FLOWS)
    await commit(socket, mods(*FLOWS))
    ours = ovs.dump()
    ovs.clear()
    assert await Ofctl(socket).bundle([f"flow add {one.text(PIPELINE, ROUND)}" for one in FLOWS]) is None
    assert sorted(ours) == sorted(ovs.dump())
    assert len(ours) == len(FLOWS)


async def test_exactly_the_flows_that_are_deleted_go(ovs: OvsBridge, socket: Path) -> None:
    await commit(socket, mods(*FLOWS))
    kept = ovs.dump()
    await commit(socket, mods(*FLOWS[:3], put=False))
    assert len(ovs.dump()) == len(FLOWS) - 3
    assert set(ovs.dump()) < set(kept)


async def test_one_flow_alone_is_applied_as_in_a_bundle(ovs: OvsBridge, socket: Path) -> None:
    await commit(socket, mods(*FLOWS))
    wanted = ovs.dump()
    ovs.clear()
    for one in FLOWS:
        before = len(ovs.dump())
        await commit(socket, mods(one))
        assert len(ovs.dump()) == before + 1
    assert sorted(ovs.dump()) == sorted(wanted)
    with pytest.raises(Unavailable, match="refused"):
        await commit(socket, mods(BAD))
    await commit(socket, mods(FLOWS[0], put=False))
    assert set(ovs.dump()) < set(wanted)


async def test_the_sink_needs_no_program_for_addresses_in_rules(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    sink = FlowSink(Ofctl(socket), PIPELINE, ROUND)
    await sink.apply(FLOWS, ())
    await sink.apply(FLOWS[:1], FLOWS[1:])
    for others in (OTHERS[:1], [*FLOWS, OTHERS[3]], FLOWS * MAX_FLOWS):
        with pytest.raises(FileNotFoundError):
            await sink.apply(others, ())


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_not_of_that_kind_is_left_to_ovs_ofctl(other: Flow) -> None:
    assert not mods(other)


async def test_what_the_switch_refuses_is_named_and_nothing_beside_it_is_applied(
    ovs: OvsBridge, socket: Path
) -> None:
    with pytest.raises(Unavailable, match="refused"):
        await commit(socket, mods(FLOWS[1], BAD))
    assert ovs.dump() == []
    with pytest.raises(Refused) as refused:
        await FlowSink(Ofctl(socket), PIPELINE, ROUND).apply([FLOWS[1], BAD], ())
    assert refused.value.entries == (BAD,)
    assert ovs.dump() == []


async def test_a_switch_that_is_away_or_does_not_answer_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await commit(tmp_path / "nobody.mgmt", mods(*FLOWS))
    silent = tmp_path / "silent.mgmt"
    async with await asyncio.start_unix_server(lambda _, writer: writer.close(), silent):
        with pytest.raises(Unavailable):
            await commit(silent, mods(*FLOWS))
