"""Tables have numbers in the order of their declaration, and no others may be referred to than those asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.openflow import tables as t
from antrea.openflow.cookie import Category
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.priority import Priority
from antrea.openflow.table import Miss, PipelineId, Stage, Table
from antrea.openflow.tables import TABLES

POD_CONNECTIVITY = (
    t.CLASSIFIER, t.SPOOF_GUARD, t.CONNTRACK_ZONE, t.CONNTRACK_STATE, t.L3_FORWARDING, t.L3_DEC_TTL,
    t.L2_FORWARDING_CALC, t.CONNTRACK_COMMIT, t.OUTPUT, t.ARP_SPOOF_GUARD, t.ARP_RESPONDER,
)  # fmt: skip


def texts(pipeline: Pipeline) -> list[str]:
    return [flow.named(pipeline) for flow in pipeline.default_flows()]


@given(st.sets(st.sampled_from(TABLES)), st.sets(st.sampled_from(TABLES)))
def test_an_id_follows_the_order_of_declaration_and_is_the_same_whatever_is_asked_for(
    asked: set[Table], later: set[Table]
) -> None:
    pipeline = Pipeline.realize(asked)
    assert list(pipeline.tables) == [
        table for table in TABLES if table in asked | {t.PIPELINE_ROOT_CLASSIFIER}
    ]
    ids = [pipeline.id(table.name) for table in pipeline.tables]
    assert ids == sorted(set(ids))
    after = Pipeline.realize(later)
    assert all(pipeline.id(table.name) == after.id(table.name) for table in asked & later)


@given(st.sets(st.sampled_from(TABLES)))
def test_every_table_has_one_miss_flow_that_leads_on_inside_its_pipeline_or_drops(asked: set[Table]) -> None:
    pipeline = Pipeline.realize(asked)
    misses = {flow.table: flow for flow in pipeline.default_flows() if flow.priority == Priority.MISS}
    for table in pipeline.tables:
        last = pipeline.of(table.pipeline)[-1] == table
        if table.miss is Miss.FEATURE and not last:
            assert table.name not in misses
            continue
        actions = misses[table.name].named(pipeline).rpartition("actions=")[2]
        dropped = last or table.miss is Miss.DROP
        assert actions == ("drop" if dropped else f"goto_table:{pipeline.next(table.name)}")
    assert len({flow.key for flow in pipeline.default_flows()}) == len(list(pipeline.default_flows()))


def test_default_flows_of_pod_connectivity_alone() -> None:
    assert texts(Pipeline.realize(POD_CONNECTIVITY)) == [
        "table=PipelineRootClassifier,priority=0 actions=drop",
        "table=ARPSpoofGuard,priority=0 actions=drop",
        "table=ARPResponder,priority=0 actions=drop",
        "table=Classifier,priority=0 actions=drop",
        "table=SpoofGuard,priority=0 actions=drop",
        "table=ConntrackZone,priority=0 actions=goto_table:ConntrackState",
        "table=L3DecTTL,priority=0 actions=goto_table:L2ForwardingCalc",
        "table=L2ForwardingCalc,priority=0 actions=goto_table:ConntrackCommit",
        "table=ConntrackCommit,priority=0 actions=goto_table:Output",
        "table=Output,priority=0 actions=drop",
        "table=PipelineRootClassifier,priority=200,arp actions=goto_table:ARPSpoofGuard",
        "table=PipelineRootClassifier,priority=200,ip actions=goto_table:Classifier",
    ]


def test_each_family_and_pipeline_has_its_entry() -> None:
    def entries(*tables: Table) -> list[str]:
        return [line for line in texts(Pipeline.realize(tables)) if ",priority=0" not in line]

    ipv6 = tuple(table for table in POD_CONNECTIVITY if table.pipeline is PipelineId.IP)
    assert entries(*ipv6, t.IPV6) == [
        "table=PipelineRootClassifier,priority=200,ipv6 actions=goto_table:Classifier"
    ]
    assert entries(*POD_CONNECTIVITY, t.PIPELINE_IP_CLASSIFIER, t.MULTICAST_ROUTING, t.MULTICAST_OUTPUT)[
        -1
    ] == ("table=PipelineIPClassifier,priority=210,ip,nw_dst=224.0.0.0/4 actions=resubmit(,MulticastRouting)")
    assert entries(t.CONNTRACK_ZONE, t.CONNTRACK_STATE, t.OUTPUT, t.NON_IP) == [
        "table=PipelineRootClassifier,priority=200,ip actions=goto_table:ConntrackZone",
        "table=PipelineRootClassifier,priority=200,ipv6 actions=goto_table:ConntrackZone",
        "table=PipelineRootClassifier,priority=190 actions=goto_table:NonIP",
    ]


def test_default_flows_are_of_the_default_category() -> None:
    assert {flow.category for flow in Pipeline.realize(TABLES).default_flows()} == {Category.DEFAULT}


def test_a_table_that_is_not_declared_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match="table Foo is not declared"):
        Pipeline.realize([Table("Foo", PipelineId.IP, Stage.ROUTING, "Nothing.")])


def test_the_last_table_has_no_next_one() -> None:
    pipeline = Pipeline.realize(POD_CONNECTIVITY)
    for last in ("ARPResponder", "Output"):
        with pytest.raises(ValueError, match=f"table {last} is the last of its pipeline"):
            pipeline.next(last)


def test_a_stage_after_the_last_table_is_refused() -> None:
    pipeline = Pipeline.realize([t.CLASSIFIER])
    with pytest.raises(ValueError, match="no table of stage OUTPUT or later in the pipeline of Classifier"):
        pipeline.first(Stage.OUTPUT, "Classifier")


def test_tables_are_declared_by_pipeline_and_inside_it_by_stage() -> None:
    assert [(table.pipeline, table.stage) for table in TABLES] == sorted(
        (x.pipeline, x.stage) for x in TABLES
    )
    assert len({table.name for table in TABLES}) == len(TABLES) == 47
