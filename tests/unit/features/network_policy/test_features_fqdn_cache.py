"""The cache of addresses of names: what rules match, until it expires, within its limits."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.features.network_policy.agent.fqdn import FqdnAddress
from antrea.features.network_policy.agent.fqdn_cache import (
    MAX_PER_NAME,
    POD_LIMIT,
    SELECTOR_LIMIT,
    SPARE,
    TOTAL_LIMIT,
    UNUSED_SECONDS,
    Fill,
    FqdnCache,
)

A, B = "192.0.2.1", "192.0.2.2"


def cache(*patterns: str, **limits: Any) -> FqdnCache:
    made = FqdnCache(**limits)
    made.set_patterns(patterns)
    return made


def row(pattern: str, address: str) -> FqdnAddress:
    return FqdnAddress(pattern, address)


def test_an_address_counts_for_every_pattern_of_its_name() -> None:
    found = cache("a.example", "*.example", "*")
    found.learn("a.example", [(A, 30)], 0)
    assert found.changes() == {row(pattern, A): True for pattern in ("a.example", "*.example", "*")}
    assert found.changes() == {}


def test_a_wildcard_stands_for_any_text_and_a_dot_for_itself() -> None:
    found = cache("*.a.example", "b*.example")
    assert found.matching("x.y.a.example") == ("*.a.example",)
    assert found.matching("a.example") == ()
    assert found.matching("xa.example") == ()
    assert found.matching("b.c.example") == ("b*.example",)
    assert found.matching("bxexample") == ()


def test_a_name_that_no_rule_matches_is_not_kept() -> None:
    found = cache("a.example")
    found.learn("b.example", [(A, 30)], 0)
    assert (len(found), found.changes()) == (0, {})


def test_two_names_with_one_address_count_as_one_until_both_are_gone() -> None:
    found = cache("*.example")
    found.learn("a.example", [(A, 30)], 0)
    found.learn("b.example", [(A, 30)], 0)
    assert found.changes() == {row("*.example", A): True}
    found.answered("a.example", [(B, 30)], 31)
    assert found.changes() == {row("*.example", B): True}
    found.answered("b.example", [(B, 30)], 31)
    assert found.changes() == {row("*.example", A): False}


def test_an_expired_address_stays_until_a_server_no_longer_has_it() -> None:
    found = cache("a.example")
    found.learn("a.example", [(A, 30), (B, 90)], 0)
    assert list(found.due(29)) == []
    assert list(found.due(31)) == ["a.example"]
    assert list(found.due(31)) == []  # until it is answered
    found.retry("a.example", 36)
    assert list(found.due(35)) == []
    assert list(found.due(36)) == ["a.example"]
    assert found.names() == {"a.example": (A, B)}
    found.answered("a.example", [("192.0.2.3", 30)], 37)
    assert {name: set(known) for name, known in found.names().items()} == {"a.example": {B, "192.0.2.3"}}
    assert list(found.due(68)) == ["a.example"]


def test_a_shorter_time_to_live_is_due_first() -> None:
    found = cache("a.example")
    found.learn("a.example", [(A, 3600)], 0)
    found.learn("a.example", [(B, 5)], 1)
    assert list(found.due(5.9)) == []
    assert list(found.due(6)) == ["a.example"]


def test_addresses_are_kept_for_the_least_time() -> None:
    found = cache("a.example", min_ttl=60)
    found.learn("a.example", [(A, 0)], 0)
    assert [one.expires for one in found.rows()] == [60]


def test_a_name_that_wildcards_alone_match_goes_when_no_pod_asks_for_it() -> None:
    found = cache("*.example", "b.example")
    for name in ("a.example", "b.example"):
        found.learn(name, [(A, 30)], 0)
    late = UNUSED_SECONDS + 31
    assert list(found.due(late)) == ["b.example"]
    assert found.names() == {"b.example": (A,)}


def test_patterns_that_come_and_go_change_what_counts() -> None:
    found = cache("*.example")
    found.learn("a.example", [(A, 30)], 0)
    found.changes()
    assert found.set_patterns(["a.example", "c.example"]) == ["c.example"]
    assert found.changes() == {row("a.example", A): True, row("*.example", A): False}
    assert found.set_patterns([]) == []
    assert (len(found), found.changes()) == (0, {row("a.example", A): False})


def test_the_name_that_was_used_least_recently_makes_room() -> None:
    found = cache("*.example", per_wildcard=2)
    for time, name in enumerate(("a.example", "b.example", "a.example", "c.example")):
        found.learn(name, [(A, 300)], time)
    assert (set(found.names()), found.evicted) == ({"a.example", "c.example"}, {SELECTOR_LIMIT: 1})
    full = cache("*.example", "*.test", names=2)
    for name in ("a.example", "b.test", "c.test"):
        full.learn(name, [(A, 300)], 0)
    assert (set(full.names()), full.evicted) == ({"a.example", "c.test"}, {TOTAL_LIMIT: 1})
    exact = cache("a.example", "b.example", "*.test", names=2)
    for name in ("a.example", "b.example", "c.test"):
        exact.learn(name, [(A, 300)], 0)
    assert (set(exact.names()), exact.evicted) == ({"b.example", "c.test"}, {TOTAL_LIMIT: 1})


def test_names_of_a_full_wildcard_stay_for_the_other_patterns_that_match_them() -> None:
    found = cache("shop.example", "*.bank", "*", per_wildcard=2)
    found.learn("shop.example", [(A, 300)], 0)
    found.learn("pay.bank", [(B, 300)], 0)
    for number in range(9):
        found.learn(f"n{number}.flood", [(A, 300)], 1)
    assert {row.name for row in found.rows()} == {"shop.example", "pay.bank", "n7.flood", "n8.flood"}
    changes = found.changes()
    assert changes[row("shop.example", A)]
    assert changes[row("*.bank", B)]
    assert row("*", B) not in changes
    found.learn("pay.bank", [(B, 300)], 2)
    assert found.changes() == {row("*", B): True}


def test_the_wildcard_with_the_most_names_makes_room_and_names_of_other_patterns_stay() -> None:
    found = cache("shop.example", "*.bank", "*.flood", names=4)
    found.learn("shop.example", [(A, 300)], 0)
    found.learn("pay.bank", [(B, 300)], 0)
    for number in range(9):
        found.learn(f"n{number}.flood", [(A, 300)], 1)
    assert {row.name for row in found.rows()} == {"shop.example", "pay.bank", "n7.flood", "n8.flood"}
    assert found.evicted == Counter({TOTAL_LIMIT: 7})


def test_how_much_of_the_limits_is_used_is_said_by_the_fullest_wildcard() -> None:
    found = cache("*.a.test", "*.b.test", "x.test", names=10, per_wildcard=4)
    for name in ("1.a.test", "2.a.test", "1.b.test", "x.test"):
        found.learn(name, [("192.0.2.1", 60)], 0)
    assert found.fills() == [
        Fill(TOTAL_LIMIT, "", 4, 10),
        Fill(SELECTOR_LIMIT, "*.a.test", 2, 4),
    ]
    assert [one.share for one in found.fills()] == [0.4, 0.5]
    assert [(one.used, one.pattern) for one in cache().fills()] == [(0, ""), (0, "")]


def test_one_name_has_a_limited_number_of_addresses() -> None:
    found = cache("a.example")
    for number in range(3 * MAX_PER_NAME):
        found.learn("a.example", [(f"10.0.{number // 256}.{number % 256}", 300)], number)
    assert len(found.names()["a.example"]) == MAX_PER_NAME
    assert f"10.0.{(3 * MAX_PER_NAME - 1) // 256}.255" in found.names()["a.example"]


def addresses(count: int, network: int = 0) -> list[tuple[str, int]]:
    return [(f"10.{network}.{number // 256}.{number % 256}", 300) for number in range(count)]


def test_a_pod_that_floods_a_wildcard_loses_its_own_names_and_those_of_other_pods_stay() -> None:
    found = cache("*", per_wildcard=8)
    for pod in ("shop/web", "shop/db"):
        for number in range(2):
            found.learn(f"{number}.{pod}", [(A, 300)], 0, pod)
    for number in range(100):
        found.learn(f"{number}.flood", [(B, 300)], 1, "evil/x")
    left = [name for name in found.names() if not name.endswith(".flood")]
    assert left == ["0.shop/web", "1.shop/web", "0.shop/db", "1.shop/db"]
    assert len(found) == 8
    assert found.evicted == Counter({SELECTOR_LIMIT: 96})


def test_a_flood_of_one_pod_over_many_wildcards_costs_no_other_pod_a_name() -> None:
    found = cache("*.a", "*.b", "*.c", "*.shop", names=8)
    for number in range(4):
        found.learn(f"{number}.shop", [(A, 300)], 0, "shop/web")
    for number in range(99):
        found.learn(f"{number}.{'abc'[number % 3]}", [(B, 300)], 1, "evil/x")
    assert [name for name in found.names() if name.endswith(".shop")] == [f"{n}.shop" for n in range(4)]
    assert (len(found), found.evicted) == (8, Counter({TOTAL_LIMIT: 95}))


def test_addresses_are_limited_in_all_for_a_wildcard_and_for_a_pod_and_the_sender_loses_its_own() -> None:
    found = cache("*.a", "*.b", addresses=(100, 60, 40))
    found.learn("shop.a", addresses(20), 0, "shop/web")
    for number in range(9):
        found.learn(f"{number}.a", addresses(10, number), 1, "evil/x")
    assert sum(map(len, found.names().values())) == 60
    assert found.evicted == Counter({POD_LIMIT: 5})
    for number in range(9):
        found.learn(f"{number}.a", addresses(15, number), 1, "evil/y")
    assert len(found.names()["shop.a"]) == 20
    assert sum(len(known) for name, known in found.names().items() if name.endswith(".a")) <= 60
    for number in range(20):
        found.learn(f"{number}.b", addresses(10, number), 2, f"evil/{number}")
    assert sum(map(len, found.names().values())) <= 100
    assert len(found.names()["shop.a"]) == 20


def test_a_name_that_another_pod_uses_too_stays_when_the_one_that_brought_it_in_is_over_its_limit() -> None:
    found = cache("*", per_wildcard=3)
    found.learn("shared.test", [(A, 300)], 0, "evil/x")
    found.learn("shared.test", [(A, 300)], 0, "shop/web")
    for number in range(9):
        found.learn(f"{number}.flood", [(B, 300)], 1, "evil/x")
    assert set(found.names()) == {"shared.test", "7.flood", "8.flood"}


def test_a_name_that_the_agent_asks_for_stays_whatever_pods_resolve() -> None:
    found = cache("api.example", "*", names=3)
    found.answered("api.example", [(A, 300)], 0)
    for number in range(9):
        found.learn(f"{number}.flood", [(B, 300)], 1, f"evil/{number}")
    assert "api.example" in found.names()


def test_no_address_is_kept_longer_than_an_hour_without_a_new_answer() -> None:
    found = cache("a.example")
    found.learn("a.example", [(A, 7 * 86_400)], 0)
    assert [one.expires for one in found.rows()] == [3600]
    longer = cache("a.example", min_ttl=7200)
    longer.learn("a.example", [(A, 7 * 86_400)], 0)
    assert [one.expires for one in longer.rows()] == [7200]


def test_answers_with_ever_shorter_times_leave_no_growing_schedule() -> None:
    found = cache("a.example")
    for number in range(1000):
        found.learn("a.example", [(A, 3000)], -number)
        found.learn("a.example", [(B, 2000 - number)], -number)
    assert len(found._due) <= 2 + SPARE


def test_what_an_earlier_agent_had_counts_and_is_due_at_once() -> None:
    found = FqdnCache()
    found.restore(["*.example"], {"a.example": (A, B), "b.test": (A,)}, {"a.example": ("shop/web",)}, 100)
    assert found.changes() == {row("*.example", A): True, row("*.example", B): True}
    assert list(found.due(101)) == ["a.example"]
    assert found.users() == {"a.example": ("shop/web",)}


def test_a_row_that_comes_and_goes_between_two_calls_is_no_change() -> None:
    """Where there is no room, the newest name may go at once."""
    found = FqdnCache(per_wildcard=2, names=3, addresses=(9, 4, 6))
    found.set_patterns(["*"])
    for name, address, pod in (("a.example", A, ""), ("b.example", A, "")):
        found.learn(name, [(address, 0)], 0, pod)
    assert found.changes() == {row("*", A): True}
    found.learn("c.test", [(B, 0)], 0, "a/x")
    assert found.changes() == {}


NAMES = st.sampled_from(["a.example", "b.example", "c.test", "x.a.example"])
ADDRESSES = st.lists(st.tuples(st.sampled_from([A, B, "2001:db8::1"]), st.integers(0, 50)), max_size=3)
PATTERNS = st.lists(st.sampled_from(["*", "*.example", "a.example", "c.test", "*.a.*"]), unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(NAMES, ADDRESSES, st.sampled_from(["", "a/x", "b/y", None])), PATTERNS, st.integers(1, 40)
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS)
def test_changes_add_up_to_the_addresses_of_patterns(steps: list[object]) -> None:
    found, now, rows = FqdnCache(names=3, per_wildcard=2, addresses=(9, 4, 6)), 0.0, set[FqdnAddress]()
    for step in steps:
        match step:
            case int():
                now += step
                for name in list(found.due(now)):
                    found.answered(name, [], now)
            case list():
                found.set_patterns(step)
            case (str(name), list(addresses), None):
                found.answered(name, addresses, now)
            case (str(name), list(addresses), str(pod)):
                found.learn(name, addresses, now, pod)
        for one, present in found.changes().items():
            assert (one in rows) is not present
            rows ^= {one}
        counted = {name: {one for one in rows if one in wanted(found, name)} for name in found.names()}
        assert rows == set().union(*counted.values())
        for name, known in found.names().items():
            assert {one.address for one in counted[name]} == set(known)
            assert {one for one in wanted(found, name) if one.pattern == name} <= rows
        assert len(found) <= 3
        assert len(rows) <= 9
        for pattern in found.patterns:
            of = {one for one in rows if one.pattern == pattern}
            assert "*" not in pattern or len(of) <= 4


def wanted(found: FqdnCache, name: str) -> set[FqdnAddress]:
    known = found.names()[name]
    return {row(pattern, address) for pattern in found.matching(name) for address in known}
