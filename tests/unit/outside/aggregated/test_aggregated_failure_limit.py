"""How many proofs of one address may be none."""

from __future__ import annotations

from antrea.outside.apiserver.failure_limit import BURST, MAX_ADDRESSES, PER_SECOND, FailureLimit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_failure_limit_an_address_has_a_burst_and_gets_it_back_in_time() -> None:
    clock = Clock()
    limit = FailureLimit(clock)
    assert [limit.reserve("10.0.0.1") for _ in range(int(BURST))] == [0.0] * int(BURST)
    assert limit.reserve("10.0.0.1") == 1 / PER_SECOND
    assert limit.reserve("10.0.0.2") == 0.0
    clock.now += 1 / PER_SECOND
    assert (limit.reserve("10.0.0.1"), limit.reserve("10.0.0.1") > 0) == (0.0, True)
    limit.cancel("10.0.0.1")
    assert limit.reserve("10.0.0.1") == 0.0


def test_failure_limit_a_subnet_of_ipv6_is_one_address_and_a_mapped_one_is_ipv4() -> None:
    limit = FailureLimit(Clock())
    for number in range(int(BURST)):
        assert limit.reserve(f"2001:db8::{number:x}") == 0.0
    assert limit.reserve("2001:db8::ffff:1") > 0
    assert limit.reserve("2001:db8:0:1::1") == 0.0
    for _ in range(int(BURST)):
        limit.reserve("::ffff:10.0.0.1")
    assert limit.reserve("10.0.0.1") > 0


def test_failure_limit_keeps_a_bounded_number_of_addresses() -> None:
    limit = FailureLimit(Clock())
    for number in range(2 * MAX_ADDRESSES):
        limit.reserve(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(limit._spent) == MAX_ADDRESSES
