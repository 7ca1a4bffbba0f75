"""Effects of BGPPolicies in the controller: Nodes whose agents send no reports no longer count as advertising."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.features.bgp_policy.advertised import NodeSpeaker, ReportsComplete, forget_node
from antrea.features.framework.controller_part import ControllerPart

if TYPE_CHECKING:
    from antrea.features.framework.controller_part import ControllerContext

SILENCE: Final = 150.0
"""Seconds without a report after which a Node is forgotten: two reports and a half."""
LOOK: Final = 10.0


class BgpControllerPart(ControllerPart):
    """Part of all BGPPolicies."""

    def __init__(self, controller: ControllerContext, silence: float = SILENCE, look: float = LOOK) -> None:
        self._facts, self._silence, self._look = controller.facts, silence, look

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        heard: dict[str, tuple[int, float]] = {}
        while True:
            now = clock()
            rows = {row.node: row.serial for row in self._facts.all(NodeSpeaker)}
            heard = {
                node: heard[node] if node in heard and heard[node][0] == serial else (serial, now)
                for node, serial in rows.items()
            }
            for node, (_, when) in heard.items():
                if now - when >= self._silence:
                    forget_node(self._facts, node)
            if now - began >= self._silence and self._facts.get(ReportsComplete) is None:
                self._facts.put(ReportsComplete())
            await asyncio.sleep(self._look)


PART = BgpControllerPart
