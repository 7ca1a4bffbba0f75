"""Placement of Egress IPs: upstream's own results, room, and how little moves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from antrea.features.egress.agent.hash_ring import MAX_SUBNETS, Ring, RingRequest, place

NODES = [f"w{number}" for number in range(100)]
ADDRESSES = [f"10.{number // 250}.7.{number % 250}" for number in range(1000)]
WISHES = [RingRequest("2026-01-01T00:00:00Z", f"egress-{address}", address, "pool") for address in ADDRESSES]


def plenty(_: str) -> int:
    return 255


def test_placement_gives_every_address_to_the_node_that_upstream_gives_it_to() -> None:
    lines = (Path(__file__).parent / "consistent_hash.txt").read_text().splitlines()[1:]
    assert len(lines) == 315
    wrong = []
    for line in lines:
        names, full, address, expected = (word.replace("-", "", word == "-") for word in line.split())
        nodes = NODES if names == "w0..w99" else names.split(",")
        found = Ring(nodes).pick(address, lambda node: node not in full.split(","))  # noqa: B023
        if found != expected:
            wrong.append((line, found))
    assert wrong == []


def test_placement_wraps_around_the_end_of_the_ring() -> None:
    only = Ring(["node-1"])
    assert {only.pick(address) for address in ADDRESSES} == {"node-1"}
    assert Ring([]).pick("10.0.0.1") == ""


def test_placement_moves_only_the_addresses_of_a_node_that_goes() -> None:
    before = place(WISHES, {"pool": [NODES]}, plenty)
    after = place(WISHES, {"pool": [[node for node in NODES if node != "w7"]]}, plenty)
    moved = {name for name in before if before[name] != after[name]}
    assert moved == {name for name, node in before.items() if node == "w7"}
    assert moved


def test_placement_fills_a_node_only_up_to_its_room_and_the_oldest_first() -> None:
    wishes = [
        RingRequest(f"2026-01-01T00:00:{30 - number:02}Z", f"egress-{number}", f"10.0.0.{number}", "pool")
        for number in range(6)
    ]
    found = place(wishes, {"pool": [["a", "b"]]}, {"a": 2, "b": 3}.__getitem__)
    assert sorted(found.values()) == ["", "a", "a", "b", "b", "b"]
    assert found["egress-0"] == ""


def test_placement_counts_an_address_that_two_egresses_share_once() -> None:
    wishes = [
        RingRequest("1", "first", "10.0.0.1", "pool"),
        RingRequest("2", "second", "10.0.0.1", "pool"),
        RingRequest("3", "third", "10.0.0.2", "pool"),
    ]
    found = place(wishes, {"pool": [["a"]]}, lambda _: 1)
    assert found == {"first": "a", "second": "a", "third": ""}


def test_placement_fills_a_node_with_twenty_subnets_and_looks_for_another_one_for_the_next() -> None:
    wishes = [
        RingRequest(
            f"{number:02}", f"{half}{number}", f"10.{number}.0.{half}", "pool", subnet=f"10.{number}.0.1/24 0"
        )
        for number in range(25)
        for half in (2, 3)
    ]
    alone = place(wishes, {"pool": [["a"]]}, plenty)
    assert [alone[f"{half}{number}"] for number in (19, 20) for half in (2, 3)] == ["a", "a", "", ""]
    full = [*wishes[:40], RingRequest("99", "late", "10.3.0.4", "pool", subnet="10.3.0.1/24 0")]
    assert {*place([*full, *wishes[40:]], {"pool": [["a"]]}, plenty).values()} == {"a", ""}
    assert place(full, {"pool": [["a"]]}, plenty)["late"] == "a"
    both = place(wishes, {"pool": [["a", "b"]]}, plenty)
    subnets = {node: {wish.subnet for wish in wishes if both[wish.name] == node} for node in both.values()}
    assert {node: len(found) <= MAX_SUBNETS for node, found in subnets.items()} == {"a": True, "b": True}
    # what stays has a table already, and the Nodes' own subnet needs none
    stays = [wish._replace(stays="a") for wish in wishes[-2:]]
    plain = RingRequest("99", "plain", "10.99.0.1", "pool")
    found = place([*wishes[:-2], *stays, plain], {"pool": [["a"]]}, plenty)
    assert [found[name] for name in ("219", "224", "plain")] == ["", "a", "a"]


def test_placement_leaves_an_egress_of_an_unknown_pool_alone() -> None:
    assert place([RingRequest("1", "web", "10.0.0.1", "gone")], {"pool": [["a"]]}, plenty) == {}


def wish(name: str, address: str = "10.0.0.1", stays: str = "", *preferred: str) -> RingRequest:
    return RingRequest("1", name, address, "pool", preferred, stays)


def test_placement_prefers_nodes_in_the_users_order_and_then_the_rings_choice() -> None:
    def found(groups: list[list[str]], *preferred: str) -> str:
        return place([wish("web", "10.0.0.1", "", *preferred)], {"pool": groups}, plenty)["web"]

    ring = Ring("abc").pick("10.0.0.1")
    one, other = (name for name in "abc" if name != ring)
    assert found([["a", "b", "c"]], one, other) == one
    assert found([["a", "b", "c"]], "gone", other, one) == other
    assert found([["a", "b", "c"]], "gone") == ring
    # a cordoned Node is not preferred to one that is not
    assert found([[ring, other], [one]], one) == Ring([ring, other]).pick("10.0.0.1")
    assert found([[], ["a", "b", "c"]], one) == one


def test_placement_of_what_stays_is_where_it_is_before_others_are_placed() -> None:
    groups = {"pool": [["a", "b"]]}
    at = Ring("ab").pick("10.0.0.1")
    (away,) = {*"ab"} - {at}
    assert place([wish("web", stays=away)], groups, plenty) == {"web": away}
    assert place([wish("web", "10.0.0.1", away, at)], groups, plenty) == {"web": away}
    assert place([wish("web", stays="gone")], groups, plenty) == {"web": at}
    assert place([wish("web", stays=away)], {"pool": [[at], [away]]}, plenty) == {"web": at}
    assert place([wish("web", stays=away)], {"pool": [[], [at, away]]}, plenty) == {"web": away}
    older = RingRequest("0", "old", "10.0.0.9", "pool", (away,))
    found = place([older, wish("web", stays=away)], groups, lambda _: 1)
    assert found == {"old": at, "web": away}


def test_placement_of_an_address_that_two_share_is_one_whatever_each_of_them_wishes() -> None:
    groups = {"pool": [["a", "b", "c"]]}
    assert place([wish("x", "10.0.0.1", "", "a"), wish("y", "10.0.0.1", "", "b")], groups, plenty) == {
        "x": "a",
        "y": "a",
    }
    assert place([wish("x", "10.0.0.1", "", "a"), wish("y", stays="c")], groups, plenty) == {
        "x": "c",
        "y": "c",
    }


SOME = st.lists(st.sampled_from(NODES[:6]), max_size=4, unique=True)


@given(
    st.lists(st.tuples(st.sampled_from(ADDRESSES[:8]), SOME, st.sampled_from(["", *NODES[:6]])), max_size=12),
    st.lists(SOME, min_size=1, max_size=3),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_placement_is_the_same_for_all_with_the_same_view_and_leaves_what_stays(  # type: ignore[no-untyped-def]
    asked, groups, most, random
) -> None:
    wishes = [
        RingRequest(str(number % 3), f"e{number}", address, "pool", tuple(preferred), stays)
        for number, (address, preferred, stays) in enumerate(asked)
    ]
    found = place(wishes, {"pool": groups}, lambda _: most)
    random.shuffle(wishes)
    assert place(wishes, {"pool": [group[::-1] for group in groups]}, lambda _: most) == found
    first: list[str] = next((group for group in groups if group), [])
    sole = Counter(wish.stays for wish in wishes if wish.stays)
    for wish in wishes:
        if (
            wish.stays in first
            and sole[wish.stays] <= most
            and len({w.address for w in wishes}) == len(wishes)
        ):
            assert found[wish.name] == wish.stays


@given(
    st.sets(st.sampled_from(NODES), min_size=1, max_size=12),
    st.lists(st.sampled_from(ADDRESSES), max_size=30),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_placement_depends_on_no_order_and_exceeds_no_room(nodes, addresses, most, random) -> None:  # type: ignore[no-untyped-def]
    wishes = [RingRequest(str(number % 7), f"e{number}", one, "pool") for number, one in enumerate(addresses)]
    found = place(wishes, {"pool": [sorted(nodes)]}, lambda _: most)
    random.shuffle(wishes)
    assert place(wishes, {"pool": [sorted(nodes, reverse=True)]}, lambda _: most) == found
    held = {
        node: {wish.address for wish in wishes if found[wish.name] == node} for node in set(found.values())
    }
    assert all(len(there) <= most for node, there in held.items() if node)
    if held.get(""):
        assert all(len(held.get(node, ())) == most for node in nodes)
