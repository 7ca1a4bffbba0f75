"""Feed of refused entries, so that units can close what is not enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.unrealized import Unrealized

if TYPE_CHECKING:
    from antrea.engine import Engine, Facts


async def follow(engine: Engine, facts: Facts) -> None:
    """Write the refusals of `engine` whenever they change, until cancelled."""
    before: dict[tuple[str, str], str] = {}
    while True:
        now = engine.unrealized()
        if now != before:
            facts.replace(Unrealized, [Unrealized(unit, row, why) for (unit, row), why in now.items()])
            before = now
        await engine.moved()
