"""A group and its buckets as values; owners of buckets share the group, and what changes is sent by bucket."""

from __future__ import annotations

from enum import Enum
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec

from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from antrea.openflow.pipeline import Pipeline

MAX_BUCKETS = 700
"""Buckets in one OpenFlow message, which holds 64 KiB (pkg/ovs/openflow/ofctrl_group.go MaxBucketsPerMessage)."""
BY_CONNECTION = "selection_method=dp_hash"
"""Selection by the datapath's hash of addresses, protocol and ports; without it, ports of UDP are left out on userspace OVS."""

_ID = attrgetter("id")

CLIENT_FIELDS = "fields(ip_src,ipv6_src,tcp_src,udp_src,sctp_src)"
CONSISTENT = f"selection_method=hash,selection_method_param=1,{CLIENT_FIELDS}"
"""Selection by rendezvous hashing over the client's address and port: a bucket that goes moves its own connections alone.

Source: ovs-ofctl(8), selection_method; ofproto/ofproto-dpif-xlate.c group_best_live_bucket of Open vSwitch
"""


class GroupType(Enum):
    """SELECT runs one bucket, chosen by the packet's hash; ALL runs every bucket on a copy."""

    SELECT = "select"
    ALL = "all"


class Bucket(msgspec.Struct, frozen=True, order=True, gc=False):
    """One bucket; `id` identifies it in its group and keeps its meaning (`facts.id`).

    A bucket stands in no table, so its actions name tables by `resubmit(TABLE)` or `resubmit_after(TABLE)`, never by
    stage or NEXT.
    """

    id: int
    actions: tuple[str, ...]
    weight: int = 0
    """Share of the packets in a SELECT group, 0 in an ALL group."""

    def text(self, render: Callable[[str], str]) -> str:
        """`bucket=bucket_id:1,weight:100,actions=...`."""
        weight = f"weight:{self.weight}," if self.weight else ""
        return f"bucket=bucket_id:{self.id},{weight}actions={render(','.join(self.actions))}"


class Group(msgspec.Struct, frozen=True, gc=False):
    """One group. It stands before the flows that name it and goes after them.

    Several owners may each want the same group with buckets of their own: the buckets unite. An owner that brings
    none must be the only one.
    """

    id: int
    type: GroupType
    buckets: tuple[Bucket, ...]
    category: int
    selection: str = ""
    """Selection method of a SELECT group as ovs-ofctl(8) writes it; empty: the datapath's hash of the connection."""

    rank: ClassVar[int] = Rank.GROUP

    @property
    def key(self) -> int:
        return self.id

    @property
    def parts(self) -> tuple[Bucket, ...]:
        return self.buckets

    def with_parts(self, parts: Iterable[Hashable]) -> Group:
        """This group with the buckets of all its owners, each once, in order of their ids."""
        # they come in order, mostly: a set would lose it, and sorting 10,000 anew holds the event loop
        buckets = cast("Iterable[Bucket]", dict.fromkeys(parts))
        return msgspec.structs.replace(self, buckets=tuple(sorted(buckets, key=_ID)))

    @property
    def mapped(self) -> bool:
        """Whether OVS chooses a bucket by its map of hashes: only a line with all buckets changes that rightly.

        Before OVS 3.6, `insert_bucket` makes the map of the new buckets alone, so that the others get nothing, and
        `remove_bucket` leaves an empty one, so that packets are dropped (openvswitch/ovs-issues, issue 357).
        """
        return self.type is GroupType.SELECT and self.selection in ("", BY_CONNECTION)

    def lines(self, pipeline: Pipeline, kept: Iterable[str] = ()) -> Iterator[str]:
        """The whole group for `ovs-ofctl add-groups`, in lines of at most MAX_BUCKETS buckets.

        The first line makes the group or replaces it whole; send all of them in one bundle. `kept` are further buckets
        as `dump-groups` prints them, of which the first line has as many as fit. Raises ValueError if two buckets
        have one id, or on a table that is not realized.
        """
        self._check()
        first = [bucket.text(pipeline.render) for bucket in self.buckets[:MAX_BUCKETS]]
        yield ",".join((f"add_or_mod {self._head}", *first, *islice(kept, MAX_BUCKETS - len(first))))
        yield from self._insert(self.buckets[MAX_BUCKETS:], pipeline)

    def changes(self, applied: Group, pipeline: Pipeline, kept: Iterable[str] = ()) -> Iterator[str]:
        """Lines that turn `applied`, which must stand exactly so, into this group; fewest buckets are touched.

        A bucket with other actions is removed and inserted again; a group that is `mapped` is replaced whole, with
        `kept` as in `lines`. Raises as `lines` does.
        """
        self._check()
        stands, wanted = set(applied.buckets), set(self.buckets)
        same = (applied.type, applied.selection) == (self.type, self.selection)
        if not same or (self.mapped and stands != wanted):
            yield from self.lines(pipeline, kept)
            return
        for bucket in applied.buckets:
            if bucket not in wanted:
                yield f"remove_bucket group_id={self.id},command_bucket_id={bucket.id}"
        yield from self._insert([bucket for bucket in self.buckets if bucket not in stands], pipeline)

    def _insert(self, buckets: Sequence[Bucket], pipeline: Pipeline) -> Iterator[str]:
        head = f"insert_bucket group_id={self.id},command_bucket_id=last"
        for start in range(0, len(buckets), MAX_BUCKETS):
            chunk = buckets[start : start + MAX_BUCKETS]
            yield ",".join((head, *(bucket.text(pipeline.render) for bucket in chunk)))

    def _check(self) -> None:
        if len({bucket.id for bucket in self.buckets}) < len(self.buckets):
            raise ValueError(f"two buckets of group {self.id} have one id")

    def named(self, pipeline: Pipeline) -> str:
        """The group for people and tests, with table names."""
        return ",".join((self._head, *(bucket.text(pipeline.named) for bucket in self.buckets)))

    @property
    def _head(self) -> str:
        head = f"group_id={self.id},type={self.type.value}"
        return f"{head},{self.selection}" if self.selection else head


def delete_line(number: int) -> str:
    """The line that removes a group, and with it every flow that names it."""
    return f"delete group_id={number}"
