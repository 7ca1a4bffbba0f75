"""One watch for each collection and selector, whoever reads its objects; two writers of one kind of row are an error."""

from __future__ import annotations

import pytest

from antrea.apis import core
from antrea.apis.core import OnlyMetadata
from antrea.facts.fact import Fact
from antrea.features.framework.admission import OF_THIS_NODE, Watched
from antrea.features.framework.watch_plan import watch_plan

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


class First(Fact, frozen=True):
    name: str


class Second(Fact, frozen=True):
    name: str


class Third(Fact, frozen=True):
    name: str


def first(found: core.Pod) -> First:
    return First(found.metadata.name)


def second(found: core.Pod) -> Second:
    return Second(found.metadata.name)


def test_two_readers_of_one_collection_share_a_watch_that_writes_both_rows() -> None:
    plan = watch_plan(
        [Watched(PODS, core.Pod, First, first), Watched(PODS, core.Pod, Second, second, optional=True)]
    )
    assert [(one.path, dict(one.rows), one.query, one.optional) for one in plan] == [
        (PODS, {First: first, Second: second}, {}, False)
    ]


def test_another_selector_is_another_watch_with_a_name_of_its_own() -> None:
    here = Watched(PODS, core.Pod, First, first, field_selector=OF_THIS_NODE)
    plan = watch_plan([here, Watched(PODS, core.Pod, Second, second), here], "n1")
    assert {one.name: (one.query, list(one.rows)) for one in plan} == {
        f"{PODS}?spec.nodeName=n1": ({"fieldSelector": "spec.nodeName=n1"}, [First]),
        PODS: ({}, [Second]),
    }


def test_equal_declarations_of_several_features_are_one() -> None:
    one = Watched(PODS, core.Pod, First, first)
    assert watch_plan([one, Watched(PODS, core.Pod, First, first)]) == watch_plan([one])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Watched(NODES, core.Node, First, first), "First is written by two watches, of /api/v1/pods and of /api/v1/nodes"),
        (Watched(PODS, core.Pod, First, second), "First is written by two watches"),
        (Watched(PODS, core.Node, Second, second), "is decoded as Pod for First and as Node for Second"),
        (Watched(PODS, OnlyMetadata, Third, second, metadata_only=True), "as OnlyMetadata for Third"),
    ],
)  # fmt: skip
def test_what_contradicts_is_refused_with_the_names_of_both(other: Watched, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        watch_plan([Watched(PODS, core.Pod, First, first), other])
