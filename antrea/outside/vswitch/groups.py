"""The groups on the switch as the sink tracks them, and the lines that change them into the desired ones.

A confirmed group is changed bucket by bucket, if it has a selection method of its own. Others are replaced whole: a new one, one
that OVS maps hashes to (`Group.mapped`), and one whose last change was refused or has an unknown outcome. A group of an earlier start is adopted: its other buckets stay until the sweep,
since feeds may be incomplete.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from antrea.openflow.group import Bucket, Group, delete_line
from antrea.openflow.group_tree import MAX_NUMBER, tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from antrea.openflow.pipeline import Pipeline

_GROUP = re.compile(r"^group_id=(\d+),type=(\w+)")
_BUCKET = re.compile(r"\bbucket=bucket_id:(\d+).*?(?=,bucket=|$)")
_REFERRED = re.compile(r"^group_id=(\d+),duration=[^,]*,ref_count=(\d+),")
_BUCKET_STATS = re.compile(r"\bbucket\d+:")
_FOREIGN = ("of an earlier start",)
"""Actions of a bucket of which we know the id only: equal to none that is wanted."""


class _Earlier(msgspec.Struct):
    """A group of an earlier start."""

    type: str
    buckets: dict[int, str]
    """Buckets on the switch that were not wanted yet: description by id."""


class Groups:
    """The tracked groups of one bridge."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._applied: dict[int, Group] = {}
        """Applied groups by number on the switch: a group of many buckets is split into several (antrea/openflow/group_tree.py)."""
        self._trees: dict[int, tuple[int, ...]] = {}
        """Numbers of a group that is split into several."""
        self._earlier: dict[int, _Earlier] = {}
        """Also of wanted groups, as long as they have buckets that are not wanted"""
        self._unwanted: set[int] = set()

    def clear(self) -> None:
        """Forget all groups: `adopt` adds those on the switch next."""
        self._applied.clear()
        self._trees.clear()
        self._earlier.clear()
        self._unwanted.clear()

    def adopt(self, description: str, buckets: Mapping[int, int]) -> None:
        """Take in a line of `dump-groups`; `buckets` counts them by group, from `bucket_count`.

        OVS cannot describe a group above 64 KiB: it shows some of its buckets. The count gives that away, and such a
        group is replaced whole when it is wanted.
        """
        if match := _GROUP.match(description):
            number = int(match[1])
            described = {int(bucket[1]): bucket[0] for bucket in _BUCKET.finditer(description.strip())}
            self._unwanted.add(number)
            if buckets.get(number) == len(described):
                self._earlier[number] = _Earlier(match[2], described)

    def put(self, group: Group) -> tuple[str, ...]:
        """Lines of a bundle after which `group` stands. Raises ValueError if it cannot be put into words."""
        wanted = tree(group)
        lines = [line for each in wanted for line in self._lines(each)]
        gone = set(self._trees.get(group.id, ())) - {each.id for each in wanted}
        return tuple(f"group {line}" for line in (*lines, *map(delete_line, sorted(gone))))

    def drop(self, group: Group) -> tuple[str, ...]:
        """The lines that delete `group`, before its branches."""
        numbers = {group.id, *self._numbers(group.id), *(each.id for each in tree(group))}
        return tuple(f"group {delete_line(number)}" for number in sorted(numbers))

    def done(self, put: Iterable[Group], drop: Iterable[int]) -> None:
        """These stand now, and those ids do not."""
        for group in put:
            self._stand(group)
        for number in drop:
            for switch_number in self._numbers(number):
                self._unwanted.discard(switch_number)
            self._forget(number)

    def doubt(self, numbers: Iterable[int]) -> None:
        """The outcome for these is unknown, or the tracked state was wrong: the next put replaces them whole."""
        for number in numbers:
            self._forget(number)

    def leftovers(self, category: int) -> list[str]:
        """Lines that take away the buckets of an earlier start in groups of `category` that we want without them."""
        return [
            f"group {line}"
            for number in self._half_wanted(category)
            if self._earlier[number].buckets
            for line in self._without_earlier(self._applied[number])
        ]

    def _without_earlier(self, group: Group) -> Iterable[str]:
        if group.mapped:
            return group.lines(self._pipeline)
        return (
            f"remove_bucket group_id={group.id},command_bucket_id={bucket}"
            for bucket in sorted(self._earlier[group.id].buckets)
        )

    def swept(self, category: int) -> None:
        """The leftovers of `category` are gone."""
        for number in list(self._half_wanted(category)):
            del self._earlier[number]

    @property
    def unwanted(self) -> frozenset[int]:
        """Groups of an earlier start that were not wanted yet."""
        return frozenset(self._unwanted)

    def unneeded(self, unnamed: AbstractSet[int | None]) -> list[int]:
        """Return those of `unwanted` that can be removed: no flow names them, nor the group that they are branches of."""
        return sorted(
            number
            for number in self._unwanted & unnamed
            if (root := number & MAX_NUMBER) not in self._unwanted or root in unnamed
        )

    def _half_wanted(self, category: int) -> Iterator[int]:
        for number in self._earlier:
            if number in self._applied and self._applied[number].category == category:
                yield number

    def _stand(self, group: Group) -> None:
        wanted = tree(group)
        for number in set(self._numbers(group.id)) - {each.id for each in wanted}:
            self._applied.pop(number, None)
            self._earlier.pop(number, None)
        for each in wanted:
            self._unwanted.discard(each.id)
            earlier = self._earlier.get(each.id)
            if earlier is not None and self._stands(each) is not None:
                for bucket in each.buckets:
                    earlier.buckets.pop(bucket.id, None)
            else:
                self._earlier.pop(each.id, None)
            self._applied[each.id] = each
        if len(wanted) > 1:
            self._trees[group.id] = tuple(each.id for each in wanted)
        else:
            self._trees.pop(group.id, None)

    def _numbers(self, number: int) -> tuple[int, ...]:
        return self._trees.get(number, (number,))

    def _lines(self, group: Group) -> Iterator[str]:
        stands = self._stands(group)
        if stands is None:
            return group.lines(self._pipeline)
        return group.changes(stands, self._pipeline, self._kept(group))

    def _kept(self, group: Group) -> list[str]:
        """Buckets of an earlier start that are not wanted yet, as the switch describes them."""
        earlier = self._earlier.get(group.id)
        wanted = {bucket.id for bucket in group.buckets}
        return [text for number, text in earlier.buckets.items() if number not in wanted] if earlier else []

    def _forget(self, number: int) -> None:
        for switch_number in self._numbers(number):
            self._applied.pop(switch_number, None)
            self._earlier.pop(switch_number, None)
        self._trees.pop(number, None)

    def _stands(self, group: Group) -> Group | None:
        """Return the group from which the change to `group` starts; None if it has to be replaced whole."""
        applied, earlier = self._applied.get(group.id), self._earlier.get(group.id)
        if earlier is None:
            return applied
        if applied is None:
            if earlier.type != group.type.value or earlier.buckets.keys() <= {
                bucket.id for bucket in group.buckets
            }:
                return None
            applied = msgspec.structs.replace(group, buckets=())
        if applied.type is not group.type:
            return None
        foreign = (Bucket(bucket.id, _FOREIGN) for bucket in group.buckets if bucket.id in earlier.buckets)
        return msgspec.structs.replace(applied, buckets=(*applied.buckets, *foreign))


def bucket_count(statistics: str) -> tuple[int, int] | None:
    """(group, its buckets) from a line of `dump-group-stats`; exact up to 4,093 buckets."""
    match = _REFERRED.match(statistics)
    return (int(match[1]), len(_BUCKET_STATS.findall(statistics))) if match else None


def unreferred(statistics: str) -> int | None:
    """The group of a line of `dump-group-stats`, if no flow names it."""
    match = _REFERRED.match(statistics)
    return int(match[1]) if match and match[2] == "0" else None
