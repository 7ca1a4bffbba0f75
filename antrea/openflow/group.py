"""A group and its buckets as values; a bucket is an entry of its own, so one Endpoint costs one row."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.openflow.pipeline import Pipeline

MAX_BUCKETS = 700
"""Buckets in one OpenFlow message: more of the widest kind would exceed its 64 KiB (upstream: MaxBucketsPerMessage)."""


class GroupType(Enum):
    """SELECT runs one bucket, chosen by the packet's hash; ALL runs every bucket on a copy."""

    SELECT = "select"
    ALL = "all"


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """One bucket of group `group`; `id` is unique in its group and small (`facts.id`)."""

    group: int
    id: int
    actions: tuple[str, ...]
    category: int
    weight: int = 0
    """Share of the packets in a SELECT group, 0 in an ALL group."""

    rank: ClassVar[int] = 46

    @property
    def key(self) -> tuple[int, int]:
        return (self.group, self.id)

    def text(self, pipeline: Pipeline) -> str:
        """`bucket=bucket_id:1,weight:100,actions=...`, part of a group line."""
        weight = f"weight:{self.weight}," if self.weight else ""
        return f"bucket=bucket_id:{self.id},{weight}actions={pipeline.render(','.join(self.actions))}"


class Group(msgspec.Struct, frozen=True):
    """A group without its buckets. It stands before the flows that name it and goes after them.

    Group actions that name `{next}` or a stage cannot be resolved, since a group stands in no table: use
    `resubmit(table)` or `resubmit_after(table)`.
    """

    id: int
    type: GroupType
    category: int

    rank: ClassVar[int] = 45

    @property
    def key(self) -> int:
        return self.id

    def lines(self, buckets: Sequence[Bucket], pipeline: Pipeline) -> Iterator[str]:
        """The whole group for `ovs-ofctl add-groups`, in lines of at most MAX_BUCKETS buckets.

        The first line makes the group or replaces it, with all its buckets; send all lines in one bundle.
        """
        head = f"add_or_mod group_id={self.id},type={self.type.value}"
        yield ",".join((head, *(bucket.text(pipeline) for bucket in buckets[:MAX_BUCKETS])))
        yield from insert_lines(buckets[MAX_BUCKETS:], pipeline)


def insert_lines(buckets: Sequence[Bucket], pipeline: Pipeline) -> Iterator[str]:
    """Lines that add `buckets`, all of one group, behind those that it has."""
    for start in range(0, len(buckets), MAX_BUCKETS):
        chunk = buckets[start : start + MAX_BUCKETS]
        head = f"insert_bucket group_id={chunk[0].group},command_bucket_id=last"
        yield ",".join((head, *(bucket.text(pipeline) for bucket in chunk)))


def remove_line(bucket: Bucket) -> str:
    """The line that takes one bucket out of its group; a changed bucket is removed, then inserted."""
    return f"remove_bucket group_id={bucket.group},command_bucket_id={bucket.id}"
