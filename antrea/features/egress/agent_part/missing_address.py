"""Report an Egress without a Node only if its address stays missing for a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.facts.egress import Egress, MissingAddress
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.address_report import why_missing

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.egress.agent.address_report import ReportMissing

GRACE_SECONDS: Final = 2.0
"""Seconds that the controller may take to allocate an address, and a user to move one."""
SLOW_SECONDS: Final = 10.0
"""Seconds that the last holder may take to appear in gossip (docs/membership.md)."""
LOOK_SECONDS: Final = 30.0
"""Seconds between checks whether a row may be removed."""


class MissingAddresses:
    """Handler of ReportMissing, which writes MissingAddress."""

    def __init__(self, facts: Facts, grace: float = GRACE_SECONDS) -> None:
        self._facts, self._grace = facts, grace

    async def wait(self, act: ReportMissing) -> None:
        """Handle the act without waiting: a pool that is deleted may have many addresses."""
        seconds = max(SLOW_SECONDS, self._grace) if act.slow else self._grace
        asyncio.get_running_loop().call_later(seconds, self._report, MissingAddress(act.egress, act.why))

    def _report(self, row: MissingAddress) -> None:
        egress, node = self._facts.get(Egress, row.egress), self._facts.get(ThisNode)
        standing = self._facts.get(MissingAddress, row.egress)
        if egress and node and why_missing(self._facts, egress, node) == row.why:
            if standing != row:
                self._facts.put(row)
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._report, row)
        elif standing == row:
            self._facts.drop(MissingAddress, row.egress)
