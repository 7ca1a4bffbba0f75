"""What would become of Egress IPs if Nodes were lost, and what a pool says when one Node is left."""

from __future__ import annotations

from typing import Any

import pytest

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.errors import Invalid
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.member import AgentNode, GossipMember, PoolMembers, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.feature import FEATURES
from antrea.features.egress.agent.last_candidate import RecordLastCandidate, last_candidate
from antrea.features.egress.agent.what_if import what_if
from antrea.features.egress.antctl import COMMANDS
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS

EVERYTHING = ((4, 0, 2**32 - 1),)
NODES = ("n1", "n2", "n3", "n4", "n5")


def world(*, alive: tuple[str, ...] = NODES[1:], selected: bool = True) -> Facts:
    """Five Nodes, and Egresses that prefer the first, and then the second of them."""
    facts = Facts()
    for name in NODES:
        facts.put(AgentNode(name, (f"192.0.2.{name[1:]}",), (f"192.0.2.{name[1:]}",)))
        if name != "n1":
            facts.put(GossipMember(name, alive=name in alive))
    for row in (
        *(AgentConfig(), ThisNode("n1"), Quorum(has=True, alive=1 + len(alive), of=5)),
        PoolSelector("p", (), ranges=EVERYTHING),
        Egress("web", "u", "203.0.113.1", "p", preferred=("n1", "n2"), survives=True, copies=True),
        Egress("db", "v", "203.0.113.2", "p", preferred=("n2", "n3"), copies=True),
        Egress("mine", "w", "203.0.113.3"),
    ):
        facts.put(row)
    facts.synced(PoolSelector)
    Engine(facts, [unit for one in (*FEATURES, POOL_MEMBERS) for unit in one.units]).plan()
    return facts


def row(egress: str, ip: str, node: str, to: str, survive: str, message: str = "") -> dict[str, str]:
    keys = ("egress", "egressIP", "node", "nextNode", "survive", "message")
    return dict(zip(keys, (egress, ip, node, to, survive, message), strict=True))


def test_the_next_nodes_of_a_lost_one_are_those_that_agents_would_choose() -> None:
    assert what_if(world(), {"lose": "n1"}) == [row("web", "203.0.113.1", "n1", "n2", "ports")]


def test_of_two_lost_nodes_neither_is_the_next_of_the_other() -> None:
    facts = world()
    assert what_if(facts, {"lose": "n1,n2"})[0] == row("db", "203.0.113.2", "n2", "n3", "sync")
    (web,) = (found for found in what_if(facts, {"lose": "n1,n2"}) if found["egress"] == "web")
    # so it is when they are lost
    gone = world(alive=("n3", "n4", "n5"))
    gone.drop(Egress, "db")
    assert web["nextNode"] in ("n3", "n4", "n5")
    assert {owner.node for owner in world(alive=("n3", "n4", "n5")).all(EgressOwner)} == {"n1", "n3"}


def test_without_a_majority_afterwards_no_node_holds_the_address() -> None:
    found = what_if(world(), {"lose": "n1,n4,n5"})
    assert found == [
        row("web", "203.0.113.1", "n1", "", "ports", "this Node is not with the majority of agents")
    ]


@pytest.mark.parametrize(("lose", "why"), [("", "name a Node"), ("n1,n9", "there is no Node 'n9'")])
def test_a_node_has_to_be_named_that_exists(lose: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        what_if(world(), {"lose": lose})


def test_antctl_prints_it() -> None:
    (command,) = (one for one in COMMANDS if (one.group, one.name) == ("egress", "what-if"))
    assert [cell(row("e", "i", "n", "m", "none")) for _, cell in command.columns] == [
        "e",
        "i",
        "n",
        "m",
        "none",
        "",
    ]


def events(members: PoolMembers, *rows: Any) -> list[RecordLastCandidate]:
    facts = Facts()
    for one in (ThisNode("n1"), Egress("web", "u", "203.0.113.1", "p"), *rows):
        facts.put(one)
    return [*last_candidate(facts, members)]


def test_the_last_node_that_can_hold_addresses_of_a_pool_says_so() -> None:
    (act,) = events(PoolMembers("p", (), ("n1",), selected=("n1", "n2")))
    assert (
        act.message
        == "no other Node of ExternalIPPool p is alive: the loss of Node n1 would end its Egress IPs"
    )


@pytest.mark.parametrize(
    "members",
    [
        PoolMembers("p", ("n1", "n2"), selected=("n1", "n2")),
        PoolMembers("p", ("n1",), ("n2",), selected=("n1", "n2")),
        PoolMembers("p", ("n2",), selected=("n1", "n2")),
        # the user wants it so
        PoolMembers("p", ("n1",), selected=("n1",)),
        PoolMembers("other", ("n1",), selected=("n1", "n2")),
    ],
    ids=["two", "a cordoned one", "another Node", "a pool of one", "no Egress"],
)
def test_nothing_is_said_of_a_pool(members: PoolMembers) -> None:
    assert events(members) == []
