"""Which cookies a sweep deletes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from antrea.openflow.cookie import cookie
from antrea.outside.vswitch.flow_sink import stale_cookies

ROUNDS = st.integers(0, 0xFFFF)
CATEGORIES = st.integers(0, 0xFF)


def swept(category: int, current: int, standing: int) -> bool:
    return any(standing & mask == value for value, mask in stale_cookies(category, current))


@given(current=st.integers(1, 0xFFFF), other=ROUNDS, category=CATEGORIES, group=st.integers(0, 0xFFFFFFFF))
@example(current=3, other=1, category=3, group=7)
@example(current=1, other=0xFFFF, category=3, group=0)
@example(current=0xFFFF, other=0, category=3, group=0)
def test_a_sweep_takes_every_round_but_its_own_and_that_of_learned_flows(
    current: int, other: int, category: int, group: int
) -> None:
    assert swept(category, current, cookie(other, category, group)) == (other not in (current, 0))


@given(current=st.integers(1, 0xFFFF), other=ROUNDS, category=CATEGORIES, foreign=CATEGORIES)
def test_a_sweep_never_takes_another_category(current: int, other: int, category: int, foreign: int) -> None:
    if foreign != category:
        assert not swept(category, current, cookie(other, foreign))


def test_a_sweep_needs_few_deletes_at_any_age() -> None:
    needed = {number: len(list(stale_cookies(1, number))) for number in (1, 2, 5, 0x7FFF, 0xAAAA, 0xFFFF)}
    assert needed == {1: 15, 2: 16, 5: 17, 0x7FFF: 29, 0xAAAA: 30, 0xFFFF: 30}
