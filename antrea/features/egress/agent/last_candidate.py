"""Event of the last living Node that can hold the addresses of a pool with Egresses: no other one would take them over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Act
from antrea.facts.egress import Egress
from antrea.facts.node import ThisNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.member import PoolMembers


class RecordLastCandidate(Act, frozen=True):
    """Event of this Node that no other one of a pool is alive."""

    message: str


def last_candidate(facts: Facts, members: PoolMembers) -> Iterator[RecordLastCandidate]:
    """Yield the Event of a pool that selects several Nodes, of which only this one is left."""
    node = facts.get(ThisNode)
    living = {name for tier in members.tiers for name in tier}
    if node is None or living != {node.name} or len(members.selected) < 2:
        return
    if facts.by(Egress, "pool", members.pool):
        message = (
            f"no other Node of ExternalIPPool {members.pool} is alive:"
            f" the loss of Node {node.name} would end its Egress IPs"
        )
        yield RecordLastCandidate(members.pool, message, message=message)
