"""Of any number of replicas at most one leads, whatever is slow, lost, paused, deleted or started again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from antrea.outside.kube.election import Election, ObservedLease, Terms

TERMS = Terms()
REPLICAS = 3
SKEW = 0.15
"""How much faster or slower than true time a clock runs, at most."""


class Replica:
    """An election with its own clock, and the requests that it has under way."""

    def __init__(self, number: int, speed: float, offset: float, terms: Terms) -> None:
        self.number = number
        self.speed = speed
        self.offset = offset
        self.terms = terms
        self.life = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        self.election = Election(f"r{self.number}-{self.life}", self.terms)
        self.base: ObservedLease | None = None
        self.began = 0.0
        self.asked: ObservedLease | None = None

    def now(self, time: float) -> float:
        return self.offset + self.speed * time


class World(RuleBasedStateMachine):
    """The API server's one object, and replicas that read and write it with any delay."""

    terms = TERMS

    @initialize(
        speeds=st.lists(st.floats(1 - SKEW, 1 + SKEW), min_size=REPLICAS, max_size=REPLICAS),
        offsets=st.lists(st.floats(-3600, 3600), min_size=REPLICAS, max_size=REPLICAS),
    )
    def begin(self, speeds: list[float], offsets: list[float]) -> None:
        self.time = 0.0
        self.versions = 0
        self.stored = ObservedLease()
        self.history = [ObservedLease()]
        self.replicas = [Replica(n, speeds[n], offsets[n], self.terms) for n in range(REPLICAS)]
        self.ever = 0

    def store(self, found: ObservedLease) -> None:
        self.versions += 1
        self.stored = msgspec.structs.replace(found, version=str(self.versions)) if found.seconds else found
        self.history.append(self.stored)

    which = st.integers(0, REPLICAS - 1)

    @rule(seconds=st.sampled_from([0.01, 0.3, 0.6, 1.0, 1.9, 2.1, 3.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(which=which)
    def a_turn_without_trouble(self, which: int) -> None:
        self.a_read_is_asked(which)
        self.a_read_is_answered(which)
        self.a_write_begins(which)
        self.a_write_ends(which, True, True)

    @rule(which=which, age=st.integers(0, 2))
    def a_watch_tells_something_maybe_old(self, which: int, age: int) -> None:
        one = self.replicas[which]
        one.election.observe(self.history[max(0, len(self.history) - 1 - age)], one.now(self.time))

    @rule(which=which)
    def a_read_is_asked(self, which: int) -> None:
        self.replicas[which].asked = self.stored

    @rule(which=which)
    def a_read_is_answered(self, which: int) -> None:
        one = self.replicas[which]
        if one.asked is not None:
            one.election.read(one.asked, one.now(self.time))
            one.asked = None

    @rule(which=which)
    def a_write_begins(self, which: int) -> None:
        one = self.replicas[which]
        now = one.now(self.time)
        if (
            one.base is None
            and now >= one.election.due()
            and not one.election.outdated
            and one.election.free(now)
        ):
            one.election.tries(now)
            one.election.writes()
            one.base, one.began = one.election.seen, now
            one.asked = None

    @rule(which=which, arrives=st.booleans(), answered=st.booleans())
    def a_write_ends(self, which: int, arrives: bool, answered: bool) -> None:
        one = self.replicas[which]
        if one.base is None:
            return
        base, one.base = one.base, None
        right = arrives and base.version == self.stored.version
        if right:
            self.store(ObservedLease(one.election.me, "", "", self.terms.lease))
        if right and answered:
            one.election.wrote(one.began, one.now(self.time))
            self.ever += 1
        else:
            one.election.failed()

    @rule(which=which)
    def a_leader_resigns_and_releases(self, which: int) -> None:
        one = self.replicas[which]
        if self.stored.holder == one.election.me:
            one.election.resign()
            self.store(ObservedLease("", "", "", self.terms.lease))
            one.start()

    @rule(which=which)
    def a_replica_is_killed_and_starts_again(self, which: int) -> None:
        self.replicas[which].start()

    @rule()
    def somebody_deletes_the_lease(self) -> None:
        self.store(ObservedLease())

    @invariant()
    def at_most_one_leads(self) -> None:
        if hasattr(self, "replicas"):
            leaders = [one.number for one in self.replicas if one.election.leads(one.now(self.time))]
            assert len(leaders) <= 1, leaders


World.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestWorld: Any = World.TestCase


def one_after_the_other(terms: Terms) -> World:
    """A first replica leads and is heard of no more; a second one takes over as soon as it may."""
    world = World()
    world.terms = terms
    world.begin([1.0] * REPLICAS, [0.0] * REPLICAS)
    for which in (0, 1):
        while not world.replicas[which].election.leads(world.time):
            assert world.time < 20
            world.time_passes(0.3)
            world.a_turn_without_trouble(which)
        world.at_most_one_leads()
    return world


def test_a_second_leads_after_the_first_and_too_early_where_a_term_is_too_long() -> None:
    world = one_after_the_other(TERMS)
    assert world.replicas[1].election.leads(world.time)
    with pytest.raises(AssertionError, match=r"\[0, 1\]"):
        one_after_the_other(Terms(lease=2.0, lead=4.0))


def held(version: int = 1, holder: str = "other") -> ObservedLease:
    return ObservedLease(holder, "10.0.0.1:1", str(version), 3.0)


def test_a_lease_is_free_a_term_after_its_last_change_was_seen() -> None:
    one = Election("me", TERMS)
    assert (one.free(0.0), one.due()) == (False, float("inf"))
    one.observe(held(1), 10.0)
    one.observe(held(1), 12.0)
    assert (one.free(12.9), one.free(13.0), one.due(), one.leader(12.9), one.leader(13.0)) == (
        False,
        True,
        13.0,
        "10.0.0.1:1",
        "",
    )
    one.observe(held(2), 12.9)
    assert (one.free(13.0), one.due()) == (False, 15.9)


def test_who_makes_a_lease_that_somebody_deleted_leads_when_no_other_can_lead_any_more() -> None:
    """As hypothesis found it: the first had not seen that there was a lease, a leader, and that somebody deleted it."""
    world = World()
    world.begin([1.0] * REPLICAS, [0.0] * REPLICAS)
    world.a_turn_without_trouble(1)
    world.time_passes(3.0)
    world.a_turn_without_trouble(1)
    assert world.replicas[1].election.leads(world.time)
    world.somebody_deletes_the_lease()
    world.a_turn_without_trouble(0)
    world.at_most_one_leads()
    world.time_passes(3.0)
    world.a_turn_without_trouble(0)
    world.at_most_one_leads()
    assert world.replicas[0].election.leads(world.time)


def test_a_released_lease_is_free_at_once_and_one_that_is_gone_is_led_by_a_term_later() -> None:
    one = Election("me", TERMS)
    one.observe(held(1), 0.0)
    one.observe(held(2, ""), 1.0)
    assert (one.free(1.0), one.due() <= 1.0) == (True, True)
    gone = Election("me", TERMS)
    gone.observe(ObservedLease(), 1.0)
    assert gone.free(1.0)
    gone.tries(1.0)
    gone.writes()
    gone.wrote(1.0, 1.2)
    gone.observe(held(1, "me"), 1.2)
    gone.tries(4.1)
    gone.wrote(4.1, 4.3)
    assert [gone.leads(t) for t in (1.2, 4.1, 4.2, 6.0, 6.1)] == [False, False, True, True, False]


def test_a_leader_leads_for_its_term_from_the_beginning_of_its_write_and_no_longer() -> None:
    one = Election("me", TERMS)
    one.observe(held(1, ""), 0.0)
    one.tries(5.0)
    one.wrote(5.0, 5.2)
    assert [one.leads(t) for t in (5.0, 6.9, 7.0)] == [True, True, False]
    one.observe(held(2, "me"), 5.5)
    assert one.due() == pytest.approx(5.6)
    # older news is none; that somebody else holds it ends everything
    one.observe(held(1, ""), 5.6)
    assert one.leads(5.6)
    one.observe(held(3), 5.7)
    assert not one.leads(5.7)


def test_a_longer_term_of_the_holder_counts() -> None:
    one = Election("me", TERMS)
    one.observe(msgspec.structs.replace(held(1), seconds=15.0), 0.0)
    assert (one.free(14.9), one.free(15.0)) == (False, True)
