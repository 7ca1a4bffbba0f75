"""Times of changes are kept for rows that there are, and for the last ones that went."""

from __future__ import annotations

from itertools import count

from antrea.engine import Facts
from antrea.facts.egress import Egress
from antrea.facts.member import GossipMember
from antrea.features.framework.change_times import ChangeTimes


def test_a_row_has_the_time_of_its_last_change() -> None:
    facts, clock = Facts(), count(1)
    changes = ChangeTimes(facts, [GossipMember], clock=lambda: next(clock))
    facts.put(GossipMember("n1", alive=True))
    facts.put(Egress("web", "u"))
    facts.put(GossipMember("n1", alive=True))
    facts.put(GossipMember("n2", alive=True))
    facts.put(GossipMember("n1", alive=False))
    facts.synced(GossipMember)
    assert changes.times == {GossipMember: {"n1": 3, "n2": 2}}


def test_times_of_rows_that_are_gone_are_bounded() -> None:
    facts, clock = Facts(), count(1)
    changes = ChangeTimes(facts, [GossipMember], clock=lambda: next(clock), gone=2)
    for number in range(10_000):
        facts.put(GossipMember(f"n{number}", alive=True))
        facts.drop(GossipMember, f"n{number}")
    facts.put(GossipMember("n9998", alive=True))
    assert changes.times == {GossipMember: {"n9998": 20_001, "n9999": 20_000}}
    facts.drop(GossipMember, "n9998")
    facts.drop(GossipMember, "nobody")
    assert changes.times == {GossipMember: {"n9998": 20_002, "n9999": 20_000}}
