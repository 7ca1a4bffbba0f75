"""How long clients wait from try to try."""

from __future__ import annotations

from antrea.outside.controlplane import client as controlplane
from antrea.outside.kube.backoff import Backoff


async def waits(tries: int, **options: float) -> list[float]:
    """Seconds of each wait, when chance stretches none and everything fails."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    pause = Backoff(sleep, lambda least, _most: least, lambda: 0.0, **options)
    for _ in range(tries):
        await pause.wait()
    return found


async def test_waits_double_up_to_half_a_minute_for_who_may_be_away_for_long() -> None:
    assert await waits(7) == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


async def test_an_agent_is_back_within_five_seconds_of_its_controller_however_long_that_was_away() -> None:
    longest = controlplane.MAX_PAUSE
    assert await waits(4, longest=longest) == [0.8, 1.6, 2.5, 2.5]
    assert 2 * longest <= 5
