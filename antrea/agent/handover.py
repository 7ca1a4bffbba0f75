"""What takes its time when Egress IPs go to another Node: they are given up a moment after that one has them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.facts.egress import Parted

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.egress.handover import Part

LINGER_SECONDS: Final = 0.5
"""For packets of Pods whose agents hear of the move a little later."""
FORGET_SECONDS: Final = 10.0
"""Long after the address has gone."""


class Handover:
    """Does Part, and remembers it for as long as the address takes to go."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def part(self, act: Part) -> None:
        """Returns at once: many addresses may go together."""
        row = Parted(act.egress, act.ip, act.to)
        loop = asyncio.get_running_loop()
        loop.call_later(LINGER_SECONDS, self._facts.put, row)
        loop.call_later(FORGET_SECONDS, self._forget, row)

    def _forget(self, row: Parted) -> None:
        if self._facts.get(Parted, row.key) == row:
            self._facts.drop(Parted, row.key)
