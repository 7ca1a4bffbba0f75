"""Groups are shared by the owners of their buckets, and sent in messages that fit."""

import msgspec
import pytest

from antrea.openflow import action, fields, tables
from antrea.openflow.cookie import Category
from antrea.openflow.group import MAX_BUCKETS, Bucket, Group, GroupType
from antrea.openflow.group_tree import HASHED
from antrea.openflow.meter import Meter, PacketInMeter, Rate, packet_in_meter
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.table import Stage

PIPELINE = Pipeline.realize([tables.CLASSIFIER, tables.SERVICE_LB, tables.ENDPOINT_DNAT, tables.OUTPUT])


def bucket(number: int, weight: int = 100) -> Bucket:
    actions = (fields.ENDPOINT_IP(0x0A000000 + number).load, action.resubmit_after(tables.SERVICE_LB))
    return Bucket(number, actions, weight)


def service(*buckets: Bucket) -> Group:
    return Group(9, GroupType.SELECT, buckets, Category.SERVICE)


def test_a_group_is_one_line_with_its_buckets() -> None:
    group = service(bucket(1), bucket(2, weight=0))
    (line,) = group.lines(PIPELINE)
    assert line.split(",bucket=") == [
        "add_or_mod group_id=9,type=select",
        "bucket_id:1,weight:100,actions=set_field:0xa000001->reg3,resubmit(,15)",
        "bucket_id:2,actions=set_field:0xa000002->reg3,resubmit(,15)",
    ]
    assert group.named(PIPELINE).endswith("set_field:0xa000002->reg3,resubmit(,EndpointDNAT)")
    assert group.key == 9


@pytest.mark.parametrize(
    ("buckets", "sizes"),
    [(0, [0]), (1, [1]), (MAX_BUCKETS, [700]), (MAX_BUCKETS + 1, [700, 1]), (5000, [700] * 7 + [100])],
)
def test_a_group_above_700_buckets_takes_more_lines(buckets: int, sizes: list[int]) -> None:
    lines = list(service(*map(bucket, range(buckets))).lines(PIPELINE))
    assert [line.count("bucket=") for line in lines] == sizes
    words = [line.split(",bucket=", 1)[0] for line in lines]
    assert words[0] == "add_or_mod group_id=9,type=select"
    assert set(words[1:]) <= {"insert_bucket group_id=9,command_bucket_id=last"}


def test_only_buckets_that_changed_are_sent_of_a_group_with_a_selection_method() -> None:
    before, after = (
        msgspec.structs.replace(group, selection=HASHED)
        for group in (
            service(bucket(1), bucket(2), bucket(3)),
            service(bucket(1), bucket(3, weight=50), bucket(4)),
        )
    )
    assert [line.partition(",actions")[0] for line in after.changes(before, PIPELINE)] == [
        "remove_bucket group_id=9,command_bucket_id=2",
        "remove_bucket group_id=9,command_bucket_id=3",
        "insert_bucket group_id=9,command_bucket_id=last,bucket=bucket_id:3,weight:50",
    ]
    assert list(after.changes(after, PIPELINE)) == []


def test_a_group_of_which_ovs_maps_hashes_is_replaced_whole() -> None:
    before, after = service(bucket(1)), service(bucket(1), bucket(2))
    kept = "bucket=bucket_id:7,weight:100,actions=drop"
    assert list(after.changes(before, PIPELINE)) == list(after.lines(PIPELINE))
    assert list(after.changes(before, PIPELINE, [kept])) == [*after.lines(PIPELINE, [kept])]
    assert next(after.lines(PIPELINE, [kept])).endswith(kept)
    assert list(after.changes(after, PIPELINE, [kept])) == []


def test_a_group_of_another_type_is_replaced_whole() -> None:
    other = Group(9, GroupType.ALL, (bucket(1),), Category.SERVICE)
    assert list(service(bucket(1)).changes(other, PIPELINE)) == list(service(bucket(1)).lines(PIPELINE))


def test_owners_of_buckets_share_a_group() -> None:
    one, two = service(bucket(2)), service(bucket(1))
    assert one.with_parts([*one.parts, *two.parts, *two.parts]) == service(bucket(1), bucket(2))


def test_two_buckets_under_one_id_are_refused() -> None:
    for lines in (
        service(bucket(1), bucket(1, weight=1)).lines(PIPELINE),
        service(bucket(1), bucket(1, weight=1)).changes(service(), PIPELINE),
    ):
        with pytest.raises(ValueError, match="two buckets of group 9 have one id"):
            list(lines)


def test_a_bucket_cannot_ask_for_a_stage_since_it_stands_in_no_table() -> None:
    with pytest.raises(ValueError, match="is not realized"):
        list(service(Bucket(1, (action.resubmit(Stage.OUTPUT),))).lines(PIPELINE))


def test_a_meter_is_one_line_and_stands_before_groups_which_stand_before_flows() -> None:
    meter = packet_in_meter(PacketInMeter.DNS, 500, Category.NETWORK_POLICY)
    assert meter.text == "meter=258,pktps,burst,band=type=drop,rate=500,burst_size=1000"
    egress = Meter(7, Rate.KBPS, 500, 1000, Category.EGRESS)
    assert egress.text == "meter=7,kbps,burst,band=type=drop,rate=500,burst_size=1000"
    assert egress.key == 7
    assert Meter.rank < Group.rank < 50


def test_buckets_are_in_the_order_of_their_ids_so_that_the_engine_need_not_sort_many_anew() -> None:
    one, two = (Bucket(number, (action,)) for number, action in ((1, "output:9"), (2, "output:1")))
    assert sorted([two, one]) == [one, two]
    assert Group(1, GroupType.SELECT, (), 0).with_parts((two, one, two)).buckets == (one, two)
