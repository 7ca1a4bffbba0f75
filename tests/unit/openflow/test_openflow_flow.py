"""A flow is a value: its key, its line on the wire, its conjunctions."""

import pytest

from antrea.openflow import action, match, tables
from antrea.openflow.cookie import Category, category_of, cookie, round_of
from antrea.openflow.field import Action
from antrea.openflow.fields import AP_DENY_REG_MARK, FROM_POD_REG_MARK, TARGET_OF_PORT
from antrea.openflow.flow import flows_of
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT, Stage

flow = flows_of(Category.POD_CONNECTIVITY)
PIPELINE = Pipeline.realize([tables.CLASSIFIER, tables.SPOOF_GUARD, tables.L3_FORWARDING, tables.OUTPUT])


def test_a_flow_says_its_names_to_people_and_its_ids_to_the_switch() -> None:
    one = flow(
        tables.CLASSIFIER,
        Priority.LOW,
        match.in_port(7),
        then=[FROM_POD_REG_MARK.load, action.goto(tables.SPOOF_GUARD)],
    )
    assert one.named(PIPELINE) == (
        "table=Classifier,priority=190,in_port=7 actions=set_field:0x3/0xf->reg0,goto_table:SpoofGuard"
    )
    assert one.text(PIPELINE, 1) == (
        "cookie=0x1010000000000,table=3,priority=190,in_port=7 actions=set_field:0x3/0xf->reg0,goto_table:4"
    )
    assert one.match_text(PIPELINE) == "table=3,priority=190,in_port=7"


def test_a_flow_without_actions_drops_and_one_without_match_takes_all() -> None:
    assert flow(tables.OUTPUT, 0, then=action.DROP).text(PIPELINE, 2) == (
        "cookie=0x2010000000000,table=37,priority=0 actions=drop"
    )


def test_a_timeout_and_an_object_id_are_part_of_the_line() -> None:
    timed = flow(tables.OUTPUT, 203, match.ip, then=[action.output(7)], hard_timeout=20, object_id=9)
    assert timed.text(PIPELINE, 1) == (
        "cookie=0x1010000000009,hard_timeout=20,table=37,priority=203,ip actions=output:7"
    )


def test_flows_with_one_table_priority_and_match_have_one_key_however_they_are_written() -> None:
    one = flow(tables.OUTPUT, 200, match.ip, match.in_port(7), match.tcp, then=action.DROP)
    two = flow(tables.OUTPUT, 200, match.tcp, match.in_port(7), then=[action.output(TARGET_OF_PORT)])
    assert one.key == two.key
    assert one != two
    assert {one.key: 1, two.key: 2} == {one.key: 2}


def test_flows_that_only_conjoin_unite_and_others_do_not() -> None:
    def clause(*ids: int) -> tuple[Action, ...]:
        return tuple(action.conjunction(number, 1, 2) for number in ids)

    one, two = (flow(tables.OUTPUT, 200, match.src("10.0.0.1"), then=clause(number)) for number in (11, 10))
    both = flow(tables.OUTPUT, 200, match.src("10.0.0.1"), then=clause(10, 11))
    assert one.with_parts([*one.parts, *two.parts, *two.parts]) == both
    assert flow(tables.OUTPUT, 200, then=[*clause(1), action.NORMAL]).parts == ()
    assert flow(tables.OUTPUT, 200, then=action.DROP).parts == ()


@pytest.mark.parametrize(("clause", "clauses"), [(0, 2), (3, 2), (1, 1), (1, 65)])
def test_a_conjunction_has_at_least_two_clauses_and_ovs_takes_64(clause: int, clauses: int) -> None:
    with pytest.raises(ValueError, match="is not a conjunction"):
        action.conjunction(1, clause, clauses)


def test_a_flow_to_a_table_that_no_feature_asked_for_is_refused() -> None:
    lost = flow(tables.CLASSIFIER, 200, then=[action.goto(tables.EGRESS_MARK)])
    with pytest.raises(ValueError, match="table EgressMark is not realized"):
        lost.text(PIPELINE, 1)
    with pytest.raises(ValueError, match="table EgressMark is not realized"):
        flow(tables.EGRESS_MARK, 200, then=action.DROP).text(PIPELINE, 1)


def test_next_and_stage_mean_tables_of_the_pipeline_of_the_flow() -> None:
    lines = [
        flow(tables.CLASSIFIER, 200, then=[action.goto(target)]).named(PIPELINE)
        for target in (NEXT, Stage.ROUTING, Stage.EGRESS_SECURITY, Stage.POST_ROUTING)
    ]
    assert [line.rpartition(":")[2] for line in lines] == [
        "SpoofGuard",
        "L3Forwarding",
        "L3Forwarding",
        "Output",
    ]


@pytest.mark.parametrize("priority", [-1, 65536])
def test_a_priority_has_16_bits(priority: int) -> None:
    with pytest.raises(ValueError, match="does not fit 16 bits"):
        flow(tables.OUTPUT, priority, then=action.DROP)


def test_a_cookie_holds_round_category_and_object() -> None:
    value = cookie(0x1_0007, Category.SERVICE, 0xFFFFFFFF)
    assert value == 0x00070300FFFFFFFF
    assert (round_of(value), category_of(value)) == (7, Category.SERVICE)
    for category, number in ((256, 0), (0, 1 << 32), (0, -1)):
        with pytest.raises(ValueError, match="does not fit a cookie"):
            cookie(1, category, number)


def test_a_priority_or_category_with_a_name_is_the_same_flow_as_one_with_its_number() -> None:
    named = flow(tables.OUTPUT, Priority.NORMAL + 1, AP_DENY_REG_MARK.match, then=action.DROP)
    plain = flows_of(1)(tables.OUTPUT, 201, AP_DENY_REG_MARK.match, then=action.DROP)
    assert named == plain
    assert hash(named) == hash(plain)
