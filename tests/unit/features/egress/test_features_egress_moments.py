"""Tables of a hand-over: the state on either Node at each moment of a move, and which change leads from state to state."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from antrea.engine import Facts
from antrea.facts.egress import AnnouncedAddress, Egress, EgressOwner, ReleasedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent import handover
from antrea.features.egress.agent.handover import (
    TRANSITIONS,
    HandoverState,
    Transition,
    assigned_here,
    state_of,
)
from antrea.features.external_ip_pool.link import DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.facts.fact import Fact

IP = "203.0.113.9"


class Moment(NamedTuple):
    """A row of the table."""

    name: str
    owner: str
    status: str
    nodes: tuple[str, str]


def rows() -> list[Moment]:
    assert handover.__doc__ is not None
    cells = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in handover.__doc__.splitlines()
        if line.startswith("| ")
    ]
    return [Moment(name, owner, status, (one, two)) for name, owner, status, one, two in cells[1:]]


MOMENTS = rows()
ORDER = [moment.name for moment in MOMENTS]


def world(moment: Moment, number: int) -> tuple[Facts, Egress, ThisNode]:
    """What the Node of this number knows at the moment."""
    names = ("n1", "n2")
    name, other = names[number], names[1 - number]
    node, egress = ThisNode(name), Egress("web", "u", IP, pool="p", node=moment.status, held=IP)
    known = [node, egress, EgressOwner("web", moment.owner), GossipMember(other, alive=True)]
    facts = Facts()
    for row in (*known, Quorum(has=True, alive=2, of=2)):
        facts.put(row)
    if "*" in moment.nodes[number]:
        facts.put(LocalAddress(IP, DEVICE))
    at = ORDER.index(moment.name)
    if name == "n2" and at >= ORDER.index("announced"):
        facts.put(AnnouncedAddress("web", IP, "n1"))
    if name == "n1" and moment.name == "released":
        facts.put(ReleasedAddress("web", IP, "n2"))
    return facts, egress, node


def test_the_table_has_a_row_for_each_moment() -> None:
    assert ORDER == ["before", "placed anew", "taken", "announced", "written", "released", "after"]


@pytest.mark.parametrize("number", [0, 1], ids=["n1", "n2"])
@pytest.mark.parametrize("moment", MOMENTS, ids=ORDER)
def test_the_state_on_a_node_is_that_of_the_table(moment: Moment, number: int) -> None:
    facts, egress, node = world(moment, number)
    state = state_of(facts, egress, node)
    assert state.name == moment.nodes[number].removeprefix("*").strip()
    released = list(handover.release(facts, egress, node))
    assert bool(released) == (state is HandoverState.TAKEN_OVER)
    assert assigned_here(facts, egress, node) == (moment.owner == node.name)


class Known(NamedTuple):
    """What Node n1 knows that matters, beside that n2 may be another holder."""

    owner: str
    status: str
    here: bool
    announced: bool
    released: bool
    quorum: bool
    alive: bool

    def may_write(self) -> bool:
        """Whether the owner writes itself into the status in place of the other Node: once neighbours find it there."""
        ready = self.owner == "n2" or self.state() is HandoverState.ANNOUNCED
        return self.status != "" and ready

    def state(self) -> HandoverState:
        facts, node = Facts(), ThisNode("n1")
        egress = Egress("web", "u", IP, pool="p", node=self.status, held=IP if self.status else "")
        rows: tuple[tuple[bool, Fact], ...] = (
            (True, egress),
            (True, GossipMember("n2", alive=self.alive)),
            (True, Quorum(has=self.quorum, alive=2, of=2)),
            (bool(self.owner), EgressOwner("web", self.owner)),
            (self.here, LocalAddress(IP, DEVICE)),
            (self.announced, AnnouncedAddress("web", IP, "n2")),
            (self.released, ReleasedAddress("web", IP, "n2")),
        )
        for is_known, row in rows:
            if is_known:
                facts.put(row)
        return state_of(facts, egress, node)


FLAGS = (False, True)
WORLDS = [Known._make(values) for values in product(("", "n1", "n2"), ("", "n1", "n2"), *[FLAGS] * 5)]
NEWS: dict[type[Fact], Callable[[Known], Known]] = {
    Egress: lambda known: known._replace(status=known.owner if known.may_write() else known.status),
    LocalAddress: lambda known: known._replace(here=False),
    AnnouncedAddress: lambda known: known._replace(announced=True),
    ReleasedAddress: lambda known: known._replace(released=known.here),
    Quorum: lambda known: known._replace(quorum=False),
    GossipMember: lambda known: known._replace(alive=False),
}
"""How a hand-over goes on, or is broken off, without being placed anew."""


def in_order(known: Known) -> bool:
    """Marks of a move are there only during it: the address is here before it is announced, and parted with once taken over."""
    announces = known.owner == "n1" and known.here
    return (announces or not known.announced) and (known.owner == known.status == "n2" or not known.released)


def test_the_table_has_every_change_of_state_while_an_address_stays_placed() -> None:
    found = {
        (before, after, kind)
        for known in filter(in_order, WORLDS)
        for kind, change in NEWS.items()
        if (before := known.state()) is not (after := change(known).state())
    }
    assert {(row.before, row.after, row.by) for row in TRANSITIONS if row.by is not EgressOwner} == found


@pytest.mark.parametrize("row", [row for row in TRANSITIONS if row.by is EgressOwner], ids=str)
def test_a_change_of_placement_leads_from_state_to_state_as_the_table_has_it(row: Transition) -> None:
    found = {
        (known.state(), known._replace(owner=owner).state())
        for known in filter(in_order, WORLDS)
        for owner in ("", "n1", "n2")
    }
    assert (row.before, row.after) in found


def test_the_page_for_users_has_the_same_table() -> None:
    lines = ["| State | Meaning | Next |", "|---|---|---|"]
    for state in HandoverState:
        after = "; ".join(f"`{row.after.name}`: {row.when}" for row in TRANSITIONS if row.before is state)
        lines.append(f"| `{state.name}` | {state.value} | {after} |")
    assert "\n".join(lines) in (Path(__file__).parents[4] / "docs" / "egress.md").read_text()
