"""Feed of what the switch refused, so that units can close what is not enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.lacking import Lacking

if TYPE_CHECKING:
    from antrea.engine import Engine, Facts


async def follow(engine: Engine, facts: Facts) -> None:
    """For ever."""
    told: dict[tuple[str, str], str] = {}
    while True:
        now = engine.lacking()
        if now != told:
            facts.replace(Lacking, [Lacking(unit, row, why) for (unit, row), why in now.items()])
            told = now
        await engine.moved()
