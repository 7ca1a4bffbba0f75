"""The table of antrea/features/egress/handover.py: what holds on either Node at each moment of a move."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from antrea.engine import Facts
from antrea.facts.egress import AnnouncedAddress, Egress, EgressOwner, ReleasedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress import handover
from antrea.features.external_ip_pool.link import DEVICE

IP = "203.0.113.9"
PREDICATES = (
    "assigned_here",
    "next_holder",
    "still_held",
    "taken_over",
    "release",
    "previous_holder",
    "awaits_announcement",
)


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
    if name == "n1" and at >= ORDER.index("released"):
        facts.put(ReleasedAddress("web", IP, "n2"))
    return facts, egress, node


def test_the_table_has_a_row_for_each_moment() -> None:
    assert ORDER == ["before", "placed anew", "taken", "announced", "written", "released", "after"]


@pytest.mark.parametrize("number", [0, 1], ids=["n1", "n2"])
@pytest.mark.parametrize("moment", MOMENTS, ids=ORDER)
def test_what_the_table_says_of_a_node_holds_and_nothing_else(moment: Moment, number: int) -> None:
    facts, egress, node = world(moment, number)
    asked = PREDICATES[: -1 if number == 0 else None]  # the last one is for the next Node
    holds = {
        name
        for name in asked
        if (found := getattr(handover, name)(facts, egress, node)) and (name != "release" or list(found))
    }
    assert holds == {*re.findall(r"`(\w+)`", moment.nodes[number])}
