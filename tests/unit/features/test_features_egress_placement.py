"""Placement of Egress IPs: upstream's own results, room, and how little moves."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from antrea.features.egress.placement import Ring, Wish, place

NODES = [f"w{number}" for number in range(100)]
ADDRESSES = [f"10.{number // 250}.7.{number % 250}" for number in range(1000)]
WISHES = [Wish("2026-01-01T00:00:00Z", f"egress-{address}", address, "pool") for address in ADDRESSES]


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


def test_placement_of_1000_addresses_over_100_members_takes_less_than_50_ms() -> None:
    place(WISHES, {"pool": [NODES]}, plenty)
    taken = []
    for gone in NODES[:5]:
        began = time.perf_counter()
        place(WISHES, {"pool": [[node for node in NODES if node != gone]]}, plenty)
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.05


def test_placement_fills_a_node_only_up_to_its_room_and_the_oldest_first() -> None:
    wishes = [
        Wish(f"2026-01-01T00:00:{30 - number:02}Z", f"egress-{number}", f"10.0.0.{number}", "pool")
        for number in range(6)
    ]
    found = place(wishes, {"pool": [["a", "b"]]}, {"a": 2, "b": 3}.__getitem__)
    assert sorted(found.values()) == ["", "a", "a", "b", "b", "b"]
    assert found["egress-0"] == ""


def test_placement_counts_an_address_that_two_egresses_share_once() -> None:
    wishes = [
        Wish("1", "first", "10.0.0.1", "pool"),
        Wish("2", "second", "10.0.0.1", "pool"),
        Wish("3", "third", "10.0.0.2", "pool"),
    ]
    found = place(wishes, {"pool": [["a"]]}, lambda _: 1)
    assert found == {"first": "a", "second": "a", "third": ""}


def test_placement_leaves_an_egress_of_an_unknown_pool_alone() -> None:
    assert place([Wish("1", "web", "10.0.0.1", "gone")], {"pool": [["a"]]}, plenty) == {}


@given(
    st.sets(st.sampled_from(NODES), min_size=1, max_size=12),
    st.lists(st.sampled_from(ADDRESSES), max_size=30),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_placement_depends_on_no_order_and_exceeds_no_room(nodes, addresses, most, random) -> None:  # type: ignore[no-untyped-def]
    wishes = [Wish(str(number % 7), f"e{number}", one, "pool") for number, one in enumerate(addresses)]
    found = place(wishes, {"pool": [sorted(nodes)]}, lambda _: most)
    random.shuffle(wishes)
    assert place(wishes, {"pool": [sorted(nodes, reverse=True)]}, lambda _: most) == found
    held = {
        node: {wish.address for wish in wishes if found[wish.name] == node} for node in set(found.values())
    }
    assert all(len(there) <= most for node, there in held.items() if node)
    if held.get(""):
        assert all(len(held.get(node, ())) == most for node in nodes)
