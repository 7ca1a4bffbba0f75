"""Groups of many buckets as several groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.openflow.group import Bucket, Group, GroupType
from antrea.openflow.group_tree import MAX_DESCRIBED, MAX_NUMBER, tree


def group(numbers: list[int], kind: GroupType = GroupType.SELECT, number: int = 7) -> Group:
    return Group(number, kind, tuple(Bucket(one, ("drop",), 100) for one in numbers), 3)


def test_a_small_group_and_one_that_runs_all_buckets_stand_as_they_are() -> None:
    small, every = group([*range(MAX_DESCRIBED)]), group([*range(2000)], GroupType.ALL)
    assert (tree(small), tree(every)) == ((small,), (every,))


@given(st.sets(st.integers(0, 1 << 24), min_size=MAX_DESCRIBED + 1, max_size=3000))
def test_each_bucket_is_in_one_branch_that_is_chosen_as_often_as_its_buckets_weigh(numbers: set[int]) -> None:
    *branches, top = tree(group(sorted(numbers)))
    assert sorted(bucket.id for one in branches for bucket in one.buckets) == sorted(numbers)
    assert max(len(one.buckets) for one in branches) <= MAX_DESCRIBED
    assert [(one.actions, one.weight) for one in top.buckets] == [
        ((f"group:{one.id}",), 100 * len(one.buckets)) for one in branches
    ]
    assert len({one.id for one in (*branches, top)}) == len(branches) + 1


def test_one_bucket_more_changes_one_branch() -> None:
    before = tree(group([*range(900)]))
    after = tree(group([*range(901)]))
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 2


@pytest.mark.parametrize(
    "found", [group([*range(501)], number=MAX_NUMBER + 1), group([number << 13 for number in range(501)])]
)
def test_what_cannot_be_split_is_refused(found: Group) -> None:
    with pytest.raises(ValueError, match="group"):
        tree(found)
