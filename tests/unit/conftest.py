"""Unit tests have nothing outside: one that starts a process or opens a door fails, for it belongs into tests/process."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from engine_world import Run

OUTSIDE = frozenset(
    {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "socket.bind", "socket.connect"}
)
"""Source: https://docs.python.org/3.11/library/audit_events.html"""
_USED: list[str] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event in OUTSIDE:
        _USED.append(f"{event}{arguments[:1]}")


sys.addaudithook(_hear)


@pytest.fixture(autouse=True)
def _nothing_outside() -> Iterator[None]:
    _USED.clear()
    yield
    assert _USED == [], "a test of tests/unit used what is outside; its place is tests/process"


def pytest_collection_finish() -> None:
    """What was collected stays: the collector need not look at it after every few tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def world() -> AsyncIterator[Run]:
    """Makes engines that run against switches in memory until the test ends."""
    from engine_world import worlds

    async with worlds() as make:
        yield make
