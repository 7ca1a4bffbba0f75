"""A flow as a value: one entry of one table, in names until the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from antrea.openflow.cookie import cookie
from antrea.openflow.normal import normal
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from antrea.openflow.field import Action, Match
    from antrea.openflow.pipeline import Pipeline
    from antrea.openflow.table import Table

RANK: Final[int] = Rank.FLOW.value
"""Rank of flows: entries that a packet meets beyond the switch are ranked before, entries that send packets to it after."""
_INPUT = {"igmp": "ip,nw_proto=2"}
"""Words of ours (and upstream) that ovs-ofctl does not read."""


class Flow(msgspec.Struct, frozen=True, gc=False):
    """One flow. Made by `flows_of(category)`, which puts the match into its normal form."""

    table: str
    priority: int
    match: tuple[str, ...]
    actions: tuple[str, ...]
    """Empty drops the packet."""
    category: int
    """Cookie category, see `Category`."""
    hard_timeout: int = 0
    """Seconds after which OVS removes the flow; 0 keeps it."""
    object_id: int = 0
    """Lower 32 bits of the cookie; the Service group of flows that learn."""
    rank: int = RANK
    """Order among flows that are applied together: smaller ones are put before the others, and removed after them."""

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        """Identity of a flow in OVS."""
        return (self.table, self.priority, self.match)

    @property
    def parts(self) -> tuple[str, ...]:
        """The conjunctions of a flow that does nothing else: policies share such a flow, and unite these."""
        only = all(action.startswith("conjunction(") for action in self.actions)
        return self.actions if only else ()

    def with_parts(self, parts: Iterable[Hashable]) -> Flow:
        """This flow with the conjunctions of all its owners, each once."""
        return msgspec.structs.replace(self, actions=tuple(sorted({str(part) for part in parts})))

    def text(self, pipeline: Pipeline, cookie_round: int) -> str:
        """The line that `ovs-ofctl -O OpenFlow15 add-flows` reads; raises ValueError on a table not realized."""
        value = cookie(cookie_round, self.category, self.object_id)
        timeout = f"hard_timeout={self.hard_timeout}," if self.hard_timeout else ""
        actions = pipeline.render(",".join(self.actions), self.table) or "drop"
        return f"cookie={value:#x},{timeout}{self.match_text(pipeline)} actions={actions}"

    def match_text(self, pipeline: Pipeline) -> str:
        """Table, priority and match: the line that deletes exactly this flow (`delete_strict`)."""
        terms = (_INPUT.get(term, term) for term in self.match)
        return ",".join((f"table={pipeline.id(self.table)}", f"priority={self.priority}", *terms))

    def named(self, pipeline: Pipeline) -> str:
        """The flow for people and tests: table names, no cookie."""
        head = ",".join((f"table={self.table}", f"priority={self.priority}", *self.match))
        return f"{head} actions={pipeline.named(','.join(self.actions), self.table) or 'drop'}"


class FlowMaker(Protocol):
    """A function that creates flows of one category, as `flows_of` returns it."""

    def __call__(
        self,
        table: Table,
        priority: int,
        *match: Match,
        then: Iterable[Action],
        hard_timeout: int = 0,
        object_id: int = 0,
    ) -> Flow: ...


def flows_of(category: int, *, rank: int = RANK) -> FlowMaker:
    """The one line a feature needs to stamp its cookie category on every flow it yields.

    The maker raises ValueError if matches contradict, or on a priority of more than 16 bits.
    """

    def flow(
        table: Table,
        priority: int,
        *match: Match,
        then: Iterable[Action],
        hard_timeout: int = 0,
        object_id: int = 0,
    ) -> Flow:
        if not 0 <= priority <= 0xFFFF:
            raise ValueError(f"priority {priority} does not fit 16 bits")
        return Flow(
            table.name,
            int(priority),
            normal(match),
            tuple(then),
            int(category),
            hard_timeout,
            object_id,
            rank,
        )

    return flow
