"""A policy that is to be confirmed is taken back on its Node at its time, whatever is away meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.engine import Facts
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent_part.confirmation import Deadlines
from antrea.features.network_policy.confirmation import TakenBack, taken_back

if TYPE_CHECKING:
    from pathlib import Path


def sent(generation: int = 1, within: str = "60s", name: str = "p") -> SentPolicy:
    told = {"antrea.io/confirm-within": within} if within else {}
    meta = ObjectMetadata(name=name, uid=name, generation=generation, annotations=told)
    return SentPolicy(cp.NetworkPolicy(metadata=meta, tier_priority=250, priority=5))


class Node:
    """Its clock is the test's."""

    def __init__(self, keep: Path) -> None:
        self.keep = keep
        self.now = 100.0
        self.starts()

    def starts(self) -> None:
        """An agent that finds what the one before has left."""
        self.facts = Facts()
        self.deadlines = Deadlines(self.facts, self.keep, lambda: self.now)

    def put(self, *rows: SentPolicy) -> None:
        self.facts.replace(SentPolicy, rows)
        self.facts.synced(SentPolicy)

    def turn(self, seconds: float = 0) -> float | None:
        """After so many seconds: how long it is to the next deadline."""
        self.now += seconds
        return asyncio.run(self.deadlines.turn())

    @property
    def back(self) -> set[str]:
        return {row.key for row in self.facts.all(TakenBack)}


def test_a_policy_goes_at_its_time_and_comes_back_when_it_is_confirmed(tmp_path: Path) -> None:
    node = Node(tmp_path / "kept")
    node.put(sent(), sent(name="other", within=""))
    assert (node.turn(), node.back) == (60, set())
    assert (node.turn(59), node.back) == (1, set())
    assert (node.turn(1), node.back) == (None, {"p 1"})
    assert taken_back(node.facts, sent().policy) == (
        "taken back: generation 1 was not confirmed within 60 s: annotate it with antrea.io/confirmed=1"
    )
    node.put(sent(within=""))
    assert (node.turn(), node.back) == (None, set())


def test_a_policy_that_is_confirmed_in_time_stays(tmp_path: Path) -> None:
    node = Node(tmp_path / "kept")
    node.put(sent())
    assert node.turn(30) == 60
    node.put(sent(within=""))
    assert (node.turn(100), node.back) == (None, set())


def test_each_generation_has_its_own_time(tmp_path: Path) -> None:
    node = Node(tmp_path / "kept")
    node.put(sent())
    node.turn()
    node.turn(60)
    node.put(sent(2))
    assert (node.turn(), node.back) == (60, set())
    assert taken_back(node.facts, sent(2).policy) == ""


def test_an_agent_that_starts_anew_goes_on_with_the_deadlines_it_finds(tmp_path: Path) -> None:
    node = Node(tmp_path / "kept")
    node.put(sent(), sent(name="late", within="5m"))
    node.turn()
    node.now += 70
    node.starts()
    assert node.back == {"p 1"}
    # the controller is away: nothing is known, and nothing is forgotten
    assert (node.turn(10), node.back) == (220, {"p 1"})
    node.put(sent(), sent(name="late", within="5m"))
    assert (node.turn(220), node.back) == (None, {"p 1", "late 1"})
    node.put()
    assert (node.turn(), node.back) == (None, set())
    assert msgspec.json.decode(node.keep.read_bytes()) == {}


def test_a_damaged_file_begins_the_time_anew(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    keep.write_bytes(b'{"p 1": "soon"')
    node = Node(keep)
    node.put(sent())
    assert (node.turn(), node.back) == (60, set())
