"""Order numbers: in the order of their keys, few moves, woken readers, freed with their last entry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from engine_world import Flow, Pod

from antrea.engine import Engine, Facts, Unit
from antrea.engine.order_numbers import STRIDE, Ranks
from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


def ranked(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Flow(pod.name, (f"priority:{facts.rank('order', (pod.port,))}",))


def test_numbers_follow_their_keys_and_stay_inside_the_bounds() -> None:
    rnd, ranks = random.Random(1), Ranks()
    ranks.low, ranks.high = 100, 400
    standing: list[int] = []
    for _ in range(3000):
        if standing and (len(standing) == 301 or rnd.random() < 0.4):
            ranks.free((standing.pop(rnd.randrange(len(standing))),))
        else:
            key = rnd.randrange(1000)
            before = dict(ranks.numbers)
            number, moved = ranks.number((key,))
            assert ranks.number((key,)) == (number, [])
            changed = [other for other, old in before.items() if ranks.numbers[other] != old]
            assert sorted(moved) == sorted(changed)
            standing = sorted({*standing, key})
        numbers = [ranks.numbers[key,] for key in sorted(standing)]
        assert numbers == sorted(set(numbers))
        assert all(100 <= number <= 400 for number in numbers)


def test_keys_that_come_in_order_move_nobody() -> None:
    up, down = Ranks(), Ranks()
    assert [moved for n in range(2000) for moved in up.number((n,))[1]] == []
    assert [moved for n in range(2000) for moved in down.number((-n,))[1]] == []
    assert up.numbers[1,] - up.numbers[0,] == STRIDE


def test_a_newcomer_without_a_gap_moves_the_shorter_run() -> None:
    ranks = Ranks()
    ranks.low, ranks.high = 1, 7
    for key in (0, 10, 20, 30, 40):
        ranks.number((key,))
    ranks.numbers.update({(0,): 2, (10,): 3, (20,): 4, (30,): 5, (40,): 6})
    assert ranks.number((15,)) == (3, [(0,), (10,)])
    assert ranks.number((35,)) == (6, [(40,)])
    with pytest.raises(Unavailable, match="a free order number between 1 and 7"):
        ranks.number((5,))


def test_a_job_whose_number_was_moved_runs_again_in_the_same_pass() -> None:
    engine = Engine(Facts(), [Unit(Pod, ranked)])
    engine.facts.ids.between("order", 1, 3)
    engine.facts.put(Pod("b", 20))
    assert engine.plan().put == [Flow("b", ("priority:2",))]
    engine.facts.put(Pod("c", 30))
    assert engine.plan().put == [Flow("c", ("priority:3",))]
    engine.facts.put(Pod("bb", 25))
    assert set(engine.plan().put) == {Flow("b", ("priority:1",)), Flow("bb", ("priority:2",))}


def test_equal_keys_share_a_number_until_the_last_is_gone() -> None:
    engine = Engine(Facts(), [Unit(Pod, ranked)])
    for name, port in (("a", 1), ("b", 1), ("c", 2)):
        engine.facts.put(Pod(name, port))
    first, second, third = sorted(engine.plan().put, key=lambda flow: flow.match)
    assert first.actions == second.actions != third.actions
    for name in ("a", "b", "c"):
        engine.facts.drop(Pod, name)
    engine.plan()
    assert (engine.empty, engine.facts.ids.rank("order", (5,))[0]) == (True, 32768)
