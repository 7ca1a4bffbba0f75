"""The flow sink against a real ovs-vswitchd with its dummy datapath."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from ovs_process import OvsProcess, ovs_process, until

from antrea.errors import Refused, Unavailable
from antrea.openflow import action, match, tables
from antrea.openflow.cookie import Category
from antrea.openflow.field import Action
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group import Bucket, Group, GroupType
from antrea.openflow.group_tree import HASHED
from antrea.openflow.meter import Meter, Rate
from antrea.openflow.pipeline import Pipeline
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.watch import SwitchWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPELINE = Pipeline.realize([tables.CLASSIFIER, tables.SPOOF_GUARD])
ROOT, CLASSIFIER, SPOOF_GUARD = tables.PIPELINE_ROOT_CLASSIFIER, tables.CLASSIFIER, tables.SPOOF_GUARD
pod_flow = flows_of(Category.POD_CONNECTIVITY)
service_flow = flows_of(Category.SERVICE)

_COUNTERS = re.compile(
    r"duration=[^,]+, |n_packets=\d+, n_bytes=\d+, |(?:idle|hard)_age=\d+, |reset_counts ?"
)


@pytest.fixture(scope="module")
def switch() -> Iterator[OvsProcess]:
    with ovs_process() as running:
        bridge = ("set", "bridge", "br-int", "datapath_type=dummy", "fail_mode=secure")
        running.vsctl("add-br", "br-int", "--", *bridge)
        for number, port in enumerate(("p1", "p2"), 1):
            interface = ("set", "interface", port, "type=dummy", f"ofport_request={number}")
            running.vsctl("add-port", "br-int", port, "--", *interface)
        yield running


@pytest.fixture
def sinks(switch: OvsProcess) -> list[FlowSink]:
    """Sinks of four starts of the agent, by round, on an empty switch."""
    ofctl = Ofctl(switch.directory / "br-int.mgmt")
    switch.ofctl("del-flows", "br-int")
    switch.ofctl("del-groups", "br-int")
    return [FlowSink(ofctl, PIPELINE, number) for number in range(4)]


def standing(switch: OvsProcess) -> list[str]:
    dump = switch.ofctl("dump-flows", "br-int").splitlines()[1:]
    return sorted(_COUNTERS.sub("", line.strip()) for line in dump)


def pod(port: int, *then: Action) -> Flow:
    return pod_flow(CLASSIFIER, 190, match.in_port(port), then=then)


async def test_flows_are_added_changed_and_deleted(sinks: list[FlowSink], switch: OvsProcess) -> None:
    one, two = pod(1, action.goto(SPOOF_GUARD)), pod(2, action.goto(SPOOF_GUARD))
    await sinks[1].apply([one, two], [])
    assert standing(switch) == [
        "cookie=0x1010000000000, table=3, priority=190,in_port=1 actions=goto_table:4",
        "cookie=0x1010000000000, table=3, priority=190,in_port=2 actions=goto_table:4",
    ]
    await sinks[1].apply([pod(1)], [two])
    left = ["cookie=0x1010000000000, table=3, priority=190,in_port=1 actions=drop"]
    assert standing(switch) == left
    await sinks[1].apply([pod(1)], [two])
    assert standing(switch) == left


async def test_deleting_a_flow_leaves_those_that_match_less_and_more(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    narrow = pod_flow(CLASSIFIER, 190, match.in_port(1), match.ip, then=[])
    await sinks[1].apply([pod(1), narrow, pod_flow(CLASSIFIER, 191, match.in_port(1), then=[])], [])
    await sinks[1].apply([], [pod(1)])
    assert standing(switch) == [
        "cookie=0x1010000000000, table=3, priority=190,ip,in_port=1 actions=drop",
        "cookie=0x1010000000000, table=3, priority=191,in_port=1 actions=drop",
    ]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (pod(77, action.group(5)), "OFPBAC_BAD_OUT_GROUP"),
        (pod(77, Action("frobnicate")), "unknown action frobnicate"),
        (pod(77, Action("goto_table:0")), "OFPBIC_BAD_TABLE_ID"),
    ],
)
async def test_one_refused_flow_among_many_is_named_and_nothing_is_half_done(
    sinks: list[FlowSink], switch: OvsProcess, bad: Flow, why: str
) -> None:
    good = [pod(number) for number in range(1, 60)]
    with pytest.raises(Refused, match=why) as no:
        await sinks[1].apply([*good[:30], bad, *good[30:]], [])
    assert no.value.entries == (bad,)
    assert standing(switch) == []


async def test_a_flow_for_a_table_that_is_not_realized_is_refused(sinks: list[FlowSink]) -> None:
    stray = pod_flow(tables.EGRESS_MARK, 200, match.ip, then=[])
    with pytest.raises(Refused, match="EgressMark") as no:
        await sinks[1].apply([pod(1), stray], [])
    assert no.value.entries == (stray,)


def clauses(count: int) -> list[Action]:
    return [action.conjunction(number, 1, 2) for number in range(1, count + 1)]


async def test_a_flow_too_long_for_a_message_is_refused_unsent(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    await sinks[1].apply([pod(3, *clauses(4000))], [])
    assert standing(switch)[0].count("conjunction(") == 4000
    with pytest.raises(Refused, match="4001 actions do not fit an OpenFlow message") as no:
        await sinks[1].apply([pod(3), pod(3, *clauses(4001))], [])
    assert no.value.entries == (pod(3, *clauses(4001)),)
    assert standing(switch)[0].count("conjunction(") == 4000


async def test_a_complaint_that_names_nobody_finds_its_flow_by_halves(sinks: list[FlowSink]) -> None:
    unnamed = pod(3, Action(",".join(clauses(4095))))
    with pytest.raises(Refused, match=r"^OFPB") as no:
        await sinks[1].apply([pod(1), pod(2), pod(7), unnamed, pod(4)], [])
    assert no.value.entries == (unnamed,)


async def test_a_change_is_one_bundle_however_large(sinks: list[FlowSink], switch: OvsProcess) -> None:
    many = [
        pod_flow(CLASSIFIER, 190, match.in_port(1), match.ip, match.dst(f"10.{n >> 8}.{n & 255}.1"), then=[])
        for n in range(12_000)
    ]
    await sinks[1].apply(many, [])
    assert "flow_count=12000" in switch.ofctl("dump-aggregate", "br-int")
    await sinks[1].apply([], many)
    assert "flow_count=0" in switch.ofctl("dump-aggregate", "br-int")
    counts = [line for line in sinks[1].operations.text().splitlines() if "_ops_count{" in line]
    assert [line.rpartition(" ")[2] for line in counts] == ["1", "0", "1"]


def received(switch: OvsProcess) -> None:
    """One packet into p1."""
    headers = ("in_port(1)", "eth(src=02:00:00:00:00:09,dst=02:00:00:00:00:0a)", "eth_type(0x0800)")
    ip = "ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)"
    switch.appctl("netdev-dummy/receive", "p1", ",".join((*headers, ip)))


async def test_a_replay_keeps_counters_and_changes_only_the_cookie(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    kept = pod_flow(ROOT, 200, match.in_port(1), then=[action.output(2)])
    await sinks[1].apply([kept, pod(2)], [])
    received(switch)
    until(lambda: "n_packets=1," in switch.ofctl("dump-flows", "br-int", "in_port=1"), "packet counted")
    await sinks[2].resync([kept])
    assert standing(switch) == [
        "cookie=0x1010000000000, table=3, priority=190,in_port=2 actions=drop",
        "cookie=0x2010000000000, priority=200,in_port=1 actions=output:2".replace(
            ", priority", ", table=0, priority"
        ),
    ]
    assert "n_packets=1," in switch.ofctl("dump-flows", "br-int", "in_port=1")


async def test_a_sweep_takes_earlier_rounds_of_its_category_only(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    for number, sink in enumerate(sinks):
        flows = [
            maker(CLASSIFIER, 190, match.in_port(10 + number), kind, then=[])
            for maker, kind in ((pod_flow, match.arp), (service_flow, match.ip))
        ]
        await sink.apply(flows, [])
    await sinks[2].sweep(Category.SERVICE)
    assert [line.split(",")[0] for line in standing(switch)] == [
        "cookie=0x10000000000",
        "cookie=0x1010000000000",
        "cookie=0x2010000000000",
        "cookie=0x2030000000000",
        "cookie=0x30000000000",
        "cookie=0x3010000000000",
    ]


async def test_a_learned_flow_outlives_the_start_that_taught_it(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    learned = f"cookie={Category.SERVICE << 40:#x}"
    teach = Action(f"learn(table=4,hard_timeout=600,priority=200,delete_learned,{learned},NXM_OF_IN_PORT[])")
    taught = service_flow(ROOT, 200, match.in_port(1), then=[teach])
    await sinks[1].apply([taught], [])
    received(switch)
    until(lambda: "hard_timeout=600" in switch.ofctl("dump-flows", "br-int", "table=4"), "learned flow")
    await sinks[2].resync([taught])
    await sinks[2].sweep(Category.SERVICE)
    assert [line.split(" actions")[0] for line in standing(switch)] == [
        "cookie=0x2030000000000, table=0, priority=200,in_port=1",
        "cookie=0x30000000000, table=4, hard_timeout=600, priority=200,in_port=1",
    ]


def bucket(number: int, mark: int = 0) -> Bucket:
    return Bucket(number, (f"set_field:{mark or number:#x}->reg3", action.resubmit(SPOOF_GUARD)), weight=100)


def group(number: int, *buckets: Bucket, selection: str = "") -> Group:
    return Group(number, GroupType.SELECT, buckets, Category.SERVICE, selection)


def chosen(switch: OvsProcess) -> set[int]:
    """Buckets of the group, to which a flow leads IP packets, that some of 32 hashes of the datapath choose."""
    traces = (switch.appctl("ofproto/trace", "br-int", f"ip,dp_hash={number}") for number in range(1, 33))
    return {int(found) for trace in traces for found in re.findall(r"-> using bucket (\d+)", trace)}


def groups(switch: OvsProcess) -> dict[str, list[str]]:
    """group -> bucket:mark"""
    dump = switch.ofctl("dump-groups", "br-int").splitlines()
    shown = {
        line.split(",")[0].strip(): re.findall(r"bucket_id:(\d+),.*?set_field:0x([0-9a-f]+)->reg3", line)
        for line in dump
    }
    return {
        head: sorted(f"{one}:{mark}" for one, mark in found)
        for head, found in shown.items()
        if "=" in head and "OFPST" not in head
    }


async def test_a_group_stands_before_its_flow_and_each_of_its_buckets_is_chosen(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    user = service_flow(ROOT, 200, match.ip, then=[action.group(5)])
    await sinks[1].apply([group(5, bucket(1), bucket(2)), user], [])
    assert groups(switch) == {"group_id=5": ["1:1", "2:2"]}
    assert chosen(switch) == {1, 2}
    await sinks[1].apply([group(5, bucket(1), bucket(2), bucket(3))], [])
    assert chosen(switch) == {1, 2, 3}
    await sinks[1].apply([group(5, bucket(1), bucket(2))], [])
    assert chosen(switch) == {1, 2}
    await sinks[1].apply([group(5, bucket(2, 9), bucket(3))], [])
    assert groups(switch) == {"group_id=5": ["2:9", "3:3"]}
    assert chosen(switch) == {2, 3}
    assert len(standing(switch)) == 1
    await sinks[1].apply([], [user, group(5, bucket(2, 9), bucket(3))])
    assert (groups(switch), standing(switch)) == ({}, [])
    await sinks[1].apply([group(5, bucket(1))], [group(6)])
    assert groups(switch) == {"group_id=5": ["1:1"]}


async def test_a_group_above_one_message_comes_and_changes_whole_and_in_part(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    """It stands as several groups: ovs-vswitchd ends when it has to describe one of more than 64 KiB."""

    def chosen() -> list[int]:
        """Buckets of the group and of each of its branches."""
        shown = groups(switch)
        return sorted(len(found) for found in shown.values() if found)

    large = [bucket(number) for number in range(1, 2001)]
    await sinks[1].apply([group(5, *large)], [])
    assert chosen() == [250] * 8
    await sinks[1].apply([group(5, *large[:-1], bucket(5000))], [])
    assert chosen() == [250] * 8
    await sinks[2].resync([group(5, *large[:1000])])
    await sinks[2].sweep(Category.SERVICE)
    assert chosen() == [250] * 4
    await sinks[2].apply([group(5, *large[:2])], [])
    assert groups(switch) == {"group_id=5": ["1:1", "2:2"]}
    await sinks[2].apply([group(5, *large)], [])
    await sinks[2].apply([], [group(5, *large)])
    assert groups(switch) == {}


async def test_a_large_group_of_an_earlier_start_goes_whole_or_stays_whole(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    user = pod_flow(CLASSIFIER, 200, match.ip, then=[action.group(6)])
    large = [bucket(number) for number in range(1, 1001)]
    await sinks[1].apply([group(5, *large), group(6, *large), user], [])
    await sinks[2].resync([])
    await sinks[2].sweep(Category.SERVICE)
    assert sum(len(found) for found in groups(switch).values()) == 1000


async def test_a_group_changed_behind_our_back_is_refused_once_and_then_replaced(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    def hashed(number: int, *buckets: Bucket) -> Group:
        return group(number, *buckets, selection=HASHED)

    await sinks[1].apply([hashed(5, bucket(1)), hashed(6, bucket(1))], [])
    switch.ofctl("mod-group", "br-int", f"group_id=5,type=select,{HASHED},bucket=bucket_id:7,actions=drop")
    change = [hashed(6, bucket(2)), hashed(5, bucket(2))]
    with pytest.raises(Refused, match="OFPGMFC_UNKNOWN_BUCKET") as no:
        await sinks[1].apply(change, [])
    assert no.value.entries == (change[1],)
    assert groups(switch)["group_id=6"] == ["1:1"]
    await sinks[1].apply(change, [])
    assert groups(switch) == {"group_id=5": ["2:2"], "group_id=6": ["2:2"]}


async def test_a_group_whose_change_ended_in_doubt_is_replaced(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    await sinks[1].apply([group(5, bucket(1), bucket(2))], [])
    switch.pause("ovs-vswitchd")
    hanging = asyncio.create_task(sinks[1].apply([group(5, bucket(1))], []))
    await asyncio.wait([hanging], timeout=0.1)
    hanging.cancel()
    await asyncio.wait([hanging])
    switch.resume("ovs-vswitchd")
    await sinks[1].apply([group(5, bucket(2), bucket(3))], [])
    assert groups(switch) == {"group_id=5": ["2:2", "3:3"]}


async def test_buckets_of_an_earlier_start_stay_until_the_sweep(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    user = service_flow(ROOT, 200, match.ip, then=[action.group(5)])
    await sinks[1].apply([group(5, bucket(1), bucket(2), bucket(3)), user], [])
    await sinks[2].resync([group(5, bucket(2, 8)), user])
    assert groups(switch) == {"group_id=5": ["1:1", "2:8", "3:3"]}
    assert chosen(switch) == {1, 2, 3}
    await sinks[2].apply([group(5, bucket(2, 8), bucket(3, 9), bucket(4))], [])
    assert groups(switch) == {"group_id=5": ["1:1", "2:8", "3:9", "4:4"]}
    await sinks[2].sweep(Category.MULTICAST)
    assert groups(switch) == {"group_id=5": ["1:1", "2:8", "3:9", "4:4"]}
    assert chosen(switch) == {1, 2, 3, 4}
    await sinks[2].sweep(Category.SERVICE)
    assert groups(switch) == {"group_id=5": ["2:8", "3:9", "4:4"]}
    assert chosen(switch) == {2, 3, 4}
    await sinks[2].apply([group(5, bucket(1))], [])
    assert groups(switch) == {"group_id=5": ["1:1"]}
    assert chosen(switch) == {1}


async def test_a_group_that_changes_its_type_loses_buckets_of_an_earlier_start_at_once(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    await sinks[1].apply([group(5, bucket(1), bucket(2))], [])
    await sinks[2].resync([group(5, bucket(2))])
    every = Group(5, GroupType.ALL, (Bucket(3, ("set_field:0x3->reg3",)),), Category.SERVICE)
    await sinks[2].apply([every], [])
    await sinks[2].sweep(Category.SERVICE)
    assert groups(switch) == {"group_id=5": ["3:3"]}


async def test_a_group_of_an_earlier_start_goes_when_neither_we_nor_a_flow_want_it(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    used, user = group(6, bucket(1)), pod_flow(CLASSIFIER, 200, match.ip, then=[action.group(6)])
    await sinks[1].apply([group(5, bucket(1)), used, group(7, bucket(1)), user], [])
    await sinks[2].resync([group(7, bucket(1))])
    assert len(groups(switch)) == 3
    await sinks[2].sweep(Category.SERVICE)
    assert groups(switch) == {"group_id=6": ["1:1"], "group_id=7": ["1:1"]}
    assert len(standing(switch)) == 1
    await sinks[2].sweep(Category.POD_CONNECTIVITY)
    assert groups(switch) == {"group_id=7": ["1:1"]}


def meters(switch: OvsProcess) -> list[str]:
    dump = switch.ofctl("dump-meters", "br-int").splitlines()[1:]
    return "\n".join(dump).replace(" bands=\n", " ").replace("\n\n", "\n").split("\n") if dump else []


async def test_meters_are_made_changed_and_swept_when_no_flow_names_them(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    def meter(number: int, rate: int) -> Meter:
        return Meter(number, Rate.KBPS, rate, 2 * rate, Category.EGRESS)

    first, second = (MeterSink(Ofctl(switch.directory / "br-int.mgmt")) for _ in range(2))
    await first.apply([meter(1, 100), meter(2, 100), meter(3, 100)], [])
    await first.apply([meter(1, 200)], [meter(3, 100), meter(9, 100)])
    both = [
        "meter=1 kbps burst type=drop rate=200 burst_size=400",
        "meter=2 kbps burst type=drop rate=100 burst_size=200",
    ]
    assert sorted(meters(switch)) == both
    await sinks[1].apply([pod(1, action.meter(2), action.output(2))], [])
    await second.resync([])
    await second.sweep(Category.EGRESS)
    assert meters(switch) == both[1:]
    await sinks[1].apply([], [pod(1)])
    await second.sweep(Category.EGRESS)
    assert meters(switch) == []


async def test_a_meter_that_the_switch_does_not_take_does_not_hold_up_the_others(switch: OvsProcess) -> None:
    sink = MeterSink(Ofctl(switch.directory / "br-int.mgmt"))
    good = Meter(7, Rate.KBPS, 1, 2, Category.EGRESS)
    bad = Meter(0, Rate.KBPS, 1, 2, Category.EGRESS)
    with pytest.raises(Refused) as no:
        await sink.apply([bad, good], [])
    assert no.value.entries == (bad,)
    assert meters(switch) == ["meter=7 kbps burst type=drop rate=1 burst_size=2"]
    await sink.apply([], [good])


async def test_flows_are_shown_with_names(sinks: list[FlowSink]) -> None:
    await sinks[1].apply(
        [pod(1, action.goto(SPOOF_GUARD)), pod_flow(ROOT, 1, then=[action.resubmit(CLASSIFIER)])], []
    )
    shown = [
        _COUNTERS.sub("", line) for line in await sinks[1].dump_flows("Classifier", "PipelineRootClassifier")
    ]
    assert shown == [
        "cookie=0x1010000000000, table=Classifier, priority=190,in_port=p1 actions=goto_table:SpoofGuard",
        "cookie=0x1010000000000, table=PipelineRootClassifier, priority=1 actions=resubmit(,Classifier)",
    ]
    assert len(await sinks[1].dump_flows()) == 2
    assert await sinks[1].dump_flows("SpoofGuard") == []
    with pytest.raises(ValueError, match="EgressMark"):
        await sinks[1].dump_flows("EgressMark")


async def test_without_a_switch_the_outcome_is_unknown(switch: OvsProcess) -> None:
    sink = FlowSink(Ofctl(switch.directory / "nobody.mgmt"), PIPELINE, 1)
    for attempt in (sink.apply([pod(1)], []), sink.sweep(1), sink.dump_flows()):
        with pytest.raises(Unavailable, match=r"nobody\.mgmt"):
            await attempt


async def test_a_cancelled_application_leaves_no_tool_behind(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    switch.pause("ovs-vswitchd")
    try:
        hanging = asyncio.create_task(sinks[1].apply([pod(1)], []))
        await asyncio.wait([hanging], timeout=0.1)
        assert not hanging.done()
        hanging.cancel()
        await asyncio.wait([hanging])
        assert hanging.cancelled()
    finally:
        switch.resume("ovs-vswitchd")
    await sinks[1].apply([pod(2)], [])
    assert len(standing(switch)) == 1


async def test_a_switch_that_comes_back_empty_is_noticed_and_replayed(
    sinks: list[FlowSink], switch: OvsProcess
) -> None:
    await sinks[1].apply([pod(1)], [])
    before = standing(switch)
    back, watcher = asyncio.Event(), SwitchWatch(switch.directory / "br-int.mgmt")
    watch = asyncio.create_task(watcher.run(back.set))
    async with asyncio.timeout(60):
        await watcher.connected.wait()
        switch.kill("ovs-vswitchd")
        assert not back.is_set()
        switch.start_switch()
        await back.wait()
    assert standing(switch) == []
    await sinks[1].resync([pod(1)])
    assert standing(switch) == before
    watch.cancel()
    await asyncio.wait([watch])


async def test_a_switch_that_hangs_does_not_respond_until_it_goes_on(switch: OvsProcess) -> None:
    watcher = SwitchWatch(switch.directory / "br-int.mgmt")
    await watcher.probe()  # not connected yet, which others report
    watch = asyncio.create_task(watcher.run(lambda: None))
    async with asyncio.timeout(60):
        await watcher.connected.wait()
        await watcher.probe()
        switch.pause("ovs-vswitchd")
        with pytest.raises(Unavailable, match="answer of ovs-vswitchd to an echo request"):
            await watcher.probe(0.2)
        assert watcher.connected.is_set()
        switch.resume("ovs-vswitchd")
        await watcher.probe()
    watch.cancel()
    await asyncio.wait([watch])
