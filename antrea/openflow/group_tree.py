"""A group of many buckets as a tree of groups, each small enough for the switch to describe.

ovs-vswitchd ends by an assertion when it describes a group of more than 64 KiB (`ovs-ofctl dump-groups`, OVS 3.1 and 3.5:
lib/ofp-msgs.c ofpmp_postappend). So a SELECT group of more than MAX_DESCRIBED buckets chooses one of several groups that share
its buckets. Those choose by a hash of their own, since the hash of the datapath has been used up by the first choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.openflow.action import group as to_group
from antrea.openflow.group import CLIENT_FIELDS, Bucket, Group, GroupType

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DESCRIBED = 500
"""Buckets of one group on the switch: one of an IPv6 Endpoint takes 112 bytes of the 65,535 of its description."""
TARGET = 250
"""Buckets of one branch to begin with, so that a branch has room for more."""
NUMBER_BITS = 20
"""A branch has the number of its tree in these bits, and its own, from 1, above them."""
MAX_NUMBER = (1 << NUMBER_BITS) - 1
MAX_BRANCHES = 2048
HASHED = f"selection_method=hash,{CLIENT_FIELDS}"
"""How a branch chooses: the connections of one client are spread, the packets of one connection are not.

The hash has another seed than that of `CONSISTENT`, by which the tree may choose the branch.
"""


def tree(group: Group) -> tuple[Group, ...]:
    """The groups that stand for `group` on the switch, branches first; itself alone if it is small or runs all buckets.

    Raises ValueError if the number of the group leaves no room for those of branches, or for more buckets than fit.
    """
    if len(group.buckets) <= MAX_DESCRIBED or group.type is not GroupType.SELECT:
        return (group,)
    if group.id > MAX_NUMBER:
        raise ValueError(
            f"group {group.id} has {len(group.buckets)} buckets; one above {MAX_NUMBER} has {MAX_DESCRIBED} at most"
        )
    branches = tuple(_branches(group))
    choices = tuple(
        Bucket(
            branch.id >> NUMBER_BITS, (to_group(branch.id),), sum(bucket.weight for bucket in branch.buckets)
        )
        for branch in branches
    )
    return (*branches, msgspec.structs.replace(group, buckets=choices))


def _branches(group: Group) -> Iterator[Group]:
    """A bucket keeps its branch until there are twice as many branches, or half as many."""
    count = 2
    while count * TARGET < len(group.buckets):
        count *= 2
    while True:
        shares: list[list[Bucket]] = [[] for _ in range(count)]
        for bucket in group.buckets:
            shares[bucket.id % count].append(bucket)
        if all(len(share) <= MAX_DESCRIBED for share in shares):
            break
        count *= 2
        if count > MAX_BRANCHES:
            raise ValueError(f"group {group.id} has {len(group.buckets)} buckets, too many of alike numbers")
    for number, share in enumerate(shares, 1):
        if share:
            yield Group(
                group.id | number << NUMBER_BITS, group.type, tuple(share), group.category, selection=HASHED
            )
