"""What the log shows of a liveness probe: a failure is a warning, a recovery is not, and each is written once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside.http.liveness_probe import LivenessProbe

if TYPE_CHECKING:
    import pytest

RESULTS = ("", "late", "late", "later", "", "")


async def test_a_change_of_a_probe_is_logged_once_and_only_a_failure_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    results, done = iter(RESULTS), asyncio.Event()

    async def probe() -> None:
        result = next(results, None)
        if result is None:
            done.set()
        elif result:
            raise Unavailable(result)

    caplog.set_level(logging.INFO)
    pulse = LivenessProbe("it", probe, period=0)
    running = asyncio.create_task(pulse.run())
    async with asyncio.timeout(60):
        await done.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert pulse.trouble == ""
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("WARNING", "Liveness probe failed"),
        ("WARNING", "Liveness probe failed"),
        ("INFO", "Liveness probe recovered"),
    ]
