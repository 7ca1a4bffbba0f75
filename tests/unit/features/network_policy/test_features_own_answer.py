"""Answers of DNS servers that are not trusted: they count for the Pod that got them, and for rules that drop or reject."""

from __future__ import annotations

from antrea.features.network_policy.agent.dns_answer import DnsAnswer
from antrea.features.network_policy.agent.fqdn import FqdnAddress
from antrea.features.network_policy.agent.own_answer import MAX_PER_POD, MAX_PODS, MIN_SECONDS, OwnAnswers

A, B = "192.0.2.1", "192.0.2.2"
SERVER = "198.51.100.66"


def made() -> OwnAnswers:
    return OwnAnswers(lambda pattern, found: FqdnAddress(pattern, found.address, found.pod))


def answer(name: str, *addresses: str, seconds: int = 600) -> DnsAnswer:
    return DnsAnswer(name, tuple((one, seconds) for one in addresses))


def test_an_answer_counts_for_its_pod_and_the_patterns_that_deny() -> None:
    found = made()
    rows = found.learn("shop/web", SERVER, answer("x.evil", A), ["*.evil"], 0)
    assert rows == [FqdnAddress("*.evil", A, "shop/web")]
    assert found.changes() == {rows[0]: True}
    assert found.changes() == {}
    found.learn("shop/web", SERVER, answer("x.test", B), [], 0)
    assert found.changes() == {}
    assert [(one.name, one.server) for one in found.of_pod("shop/web")] == [
        ("x.evil", SERVER),
        ("x.test", SERVER),
    ]
    assert found.of_pod("shop/db") == []


def test_an_answer_that_comes_and_goes_between_two_calls_is_no_change() -> None:
    found = made()
    found.learn("shop/web", SERVER, answer("x.evil", A), ["*.evil"], 0)
    found.expire(601)
    assert found.changes() == {}


def test_an_address_that_two_names_have_counts_until_both_are_gone() -> None:
    found = made()
    found.learn("shop/web", SERVER, answer("x.evil", A, seconds=400), ["*.evil"], 0)
    found.learn("shop/web", SERVER, answer("y.evil", A, seconds=900), ["*.evil"], 0)
    found.changes()
    found.expire(401)
    assert found.changes() == {}
    found.expire(901)
    assert found.changes() == {FqdnAddress("*.evil", A, "shop/web"): False}
    assert found.pods() == []


def test_times_to_live_are_bounded_on_both_sides() -> None:
    found = made()
    found.learn("a/x", SERVER, answer("x.evil", A, seconds=0), [], 0)
    found.learn("a/x", SERVER, answer("x.evil", B, seconds=7 * 86_400), [], 0)
    assert [one.expires for one in found.of_pod("a/x")] == [MIN_SECONDS, 3600]


def test_a_pod_makes_room_for_its_own_answers_alone() -> None:
    found = made()
    found.learn("shop/web", SERVER, answer("x.evil", A), ["*.evil"], 0)
    found.changes()
    for number in range(MAX_PER_POD + 9):
        found.learn(
            "evil/x", SERVER, answer(f"{number}.evil", f"10.0.{number // 256}.{number % 256}"), ["*.evil"], 0
        )
    assert len(found.of_pod("evil/x")) == MAX_PER_POD
    changes = found.changes()
    assert len([row for row, present in changes.items() if present]) == MAX_PER_POD
    assert len(found.of_pod("shop/web")) == 1


def test_only_so_many_pods_are_remembered() -> None:
    found = made()
    for number in range(MAX_PODS + 5):
        found.learn(f"a/{number}", SERVER, answer("x.evil", A), ["*.evil"], 0)
    assert len(found.pods()) == MAX_PODS
    assert sum(found.changes().values()) == MAX_PODS


def test_patterns_that_come_and_go_change_what_counts() -> None:
    found = made()
    found.learn("a/x", SERVER, answer("x.evil", A), [], 0)
    found.set_patterns(lambda name: ["*.evil"] if name.endswith(".evil") else [])
    assert found.changes() == {FqdnAddress("*.evil", A, "a/x"): True}
    found.set_patterns(lambda _: [])
    assert found.changes() == {FqdnAddress("*.evil", A, "a/x"): False}
