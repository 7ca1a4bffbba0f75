"""Recommended policies before the evaluator of `antctl explain`: in random worlds they allow what was seen, and close the rest."""

from __future__ import annotations

import random

import pytest
from replay_world import SPACES, changed, pod

from antrea.antctl.policy.recommendation import DENY, Link, Recommendation, recommend
from antrea.antctl.policy.seen import links_of

OUTSIDE = ("192.0.2.7", "192.0.2.8", "2001:db8::6", "2001:db8::7")


@pytest.mark.parametrize("seed", range(40))
def test_what_was_seen_passes_and_nothing_else_does(seed: int) -> None:
    chance = random.Random(seed)
    pods, ends, number = [], [], 0
    for space in SPACES:
        for workload in range(chance.randint(1, 4)):
            own = {"app": f"w{workload}", **({"tier": chance.choice("ab")} if chance.random() < 0.5 else {})}
            ends.append(f"workload/{space}/w{workload}-app")
            for index in range(chance.randint(1, 3)):
                number += 1
                name, ips = f"w{workload}-app-{index}", (f"10.0.0.{number}", f"fd00::{number:x}")
                pods.append(pod(space, name, {**own, "statefulset.kubernetes.io/pod-name": name}, *ips))
    ends += [f"address/{ip}" for ip in OUTSIDE]
    every = [
        Link(one, other, port, protocol, 1, 0)
        for one in ends for other in ends for port, protocol in ((53, 17), (80, 6), (443, 6))
        if one != other and any(end.startswith("workload/shop/") for end in (one, other))
    ]  # fmt: skip
    seen = chance.sample(every, chance.randint(1, len(every) // 2))
    found = recommend("shop", seen, pods)
    assert (found.left_out, found.notes) == ([], [])
    assert found == recommend("shop", chance.sample(seen, len(seen)), chance.sample(pods, len(pods)))
    assert changed(pods, found.policies, every) == set(every) - set(seen)


PAIR = ("workload/shop/feed", "workload/shop/reader")
PODS = [
    pod("shop", "feed", {"app": "feed"}, "10.0.0.1"),
    pod("shop", "reader", {"app": "reader"}, "10.0.0.2"),
]


def test_connections_whose_direction_is_unknown_are_no_rule() -> None:
    """A stream that was picked up in the middle leaves a record from the server to the client's port."""
    reversed_link = Link(*PAIR, 45904, 6, 3, 1, unknown=2)
    found = recommend("shop", [Link(PAIR[1], PAIR[0], 50123, 6, 4, 0), reversed_link], PODS)
    assert "45904" not in str(found.policies)
    assert [one["metadata"]["name"] for one in found.policies] == [
        "recommended-feed",
        "recommended-reader",
        DENY,
    ]
    assert found.left_out == [
        "shop/feed -> shop/reader TCP/45904: denied 1 times",
        "shop/feed -> shop/reader TCP/45904: the direction of 2 connections is unknown",
    ]
    assert recommend("shop", [reversed_link], PODS).policies == []


def test_a_link_with_connections_of_both_kinds_is_allowed_with_a_note() -> None:
    found = recommend("shop", [Link(*PAIR, 8080, 6, 5, 0, unknown=2)], PODS)
    assert "8080" in str(found.policies)
    assert found.notes == [
        "shop/feed -> shop/reader TCP/8080: is allowed, and the direction of 2 connections is unknown"
    ]
    told = found.policies[0]["metadata"]["annotations"]["policy.antrea.io/recommended-for"]
    assert told == "shop/feed -> shop/reader TCP/8080: 3"


def test_what_was_seen_may_be_of_a_version_without_unknown_directions() -> None:
    row = {"source": PAIR[0], "target": PAIR[1], "port": 80, "protocol": 6, "connections": 2, "denied": 0}
    assert links_of({"links": [row, {**row, "unknown": 1}]}).links == [
        Link(*PAIR, 80, 6, 2, 0, 0), Link(*PAIR, 80, 6, 2, 0, 1),
    ]  # fmt: skip


def test_labels_that_select_others_as_well_are_named() -> None:
    pods = [
        pod("shop", "web-0", {"app": "shop"}, "10.0.0.1"),
        pod("shop", "db-0", {"app": "shop", "tier": "db"}, "10.0.0.2"),
    ]
    found = recommend("shop", [Link("workload/shop/web", "address/192.0.2.7", 80, 6, 1, 0)], pods)
    assert found.notes == ["shop/web: its labels select shop/db as well, which may do the same"]


def names_of(found: Recommendation) -> list[str]:
    return [one["metadata"]["name"] for one in found.policies]


def test_no_policy_of_a_workload_takes_the_place_of_another() -> None:
    """Least of all that of the isolation: applied after it, it would open the Namespace."""
    workloads = ["default-deny", "a" * 242, "a" * 241 + "b"]
    pods = [pod("shop", f"{name}-0", {"app": name[:60] + name[-1]}, "10.0.0.1") for name in workloads]
    links = [Link(f"workload/shop/{name}", "address/192.0.2.7", 80, 6, 1, 0) for name in workloads]
    names = names_of(recommend("shop", links, pods))
    assert (names.count(DENY), len(set(names))) == (1, 4)
    assert all(len(name) <= 253 for name in names)
