"""Which connection makes room when there are too many: one of the source with the most, else the one that is idle for longest."""

from collections import Counter
from random import Random

from antrea.outside.listener.connection_pool import ConnectionPool, first_idle
from antrea.outside.listener.source import network


def pool(*peers: tuple[str, int], limit: int = 16) -> ConnectionPool:
    made = ConnectionPool(limit)
    for peer in peers:
        made.add(peer)
    return made


def test_the_source_with_the_most_makes_room_before_one_that_came_earlier() -> None:
    # a source may have an eighth of the places: two of 16
    flood = [("192.0.2.9", port) for port in range(3)]
    assert pool(("10.0.0.1", 1), ("10.0.0.2", 1), *flood).next_to_drop() == flood[0]


def test_addresses_of_one_network_of_ipv6_are_one_source() -> None:
    flood = [(f"2001:db8::{number}", 1) for number in range(1, 4)]
    assert pool(("2001:db8:1::1", 1), *flood).next_to_drop() == flood[0]


def test_without_a_large_source_the_one_that_is_idle_for_longest_makes_room() -> None:
    many = [(f"10.0.0.{number}", 1) for number in range(1, 9)]
    held = pool(("192.0.2.9", 1), ("192.0.2.9", 2), *many)
    assert held.next_to_drop() == ("192.0.2.9", 1)
    held.discard(("192.0.2.9", 1))
    held.add(("192.0.2.9", 1))
    assert held.next_to_drop() == ("192.0.2.9", 2)
    assert held.next_to_drop(busy={("192.0.2.9", 2)}) == many[0]
    assert held.next_to_drop(besides=("192.0.2.9", 2)) == many[0]


def test_a_pool_without_connections_has_none_to_drop() -> None:
    held = pool(("10.0.0.1", 1))
    assert held.next_to_drop(besides=("10.0.0.1", 1)) is None
    assert (held.discard(("10.0.0.1", 1)), held.discard(("10.0.0.1", 1))) == (True, False)
    assert (held.next_to_drop(), len(held), held._by_source) == (None, 0, {})
    assert first_idle([("a", 1), ("b", 1)], {("a", 1), ("b", 1)}) == ("a", 1)


def test_the_source_of_an_address() -> None:
    given = ("10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "fe80::1%eth0", "")
    assert [network(one) for one in given] == ["10.0.0.1", "10.0.0.1", "2001:db8::/64", "fe80::/64", ""]


def test_the_largest_source_is_known_after_any_changes() -> None:
    random, held = Random(37), pool(limit=8)
    peers = [(f"10.0.0.{source}", port) for source in range(6) for port in range(6)]
    for _ in range(3000):
        (held.add if random.random() < 0.6 else held.discard)(random.choice(peers))
        counts = Counter(peer[0] for peer in held)
        gone = held.next_to_drop()
        if not counts:
            assert gone is None
        elif max(counts.values()) > 1:
            assert gone
            assert counts[gone[0]] == max(counts.values())
            assert gone == next(peer for peer in held if peer[0] == gone[0])
        else:
            assert gone == next(iter(held))
