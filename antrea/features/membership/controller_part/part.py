"""Effects of membership in the controller: the key by which agents seal their gossip is kept in a Secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.framework.controller_part import ControllerPart
from antrea.features.membership.controller_part.gossip_keys import GossipKeys

if TYPE_CHECKING:
    from antrea.features.framework.controller_part import ControllerContext


class MembershipPart(ControllerPart):
    """Part of all agents."""

    def __init__(self, controller: ControllerContext) -> None:
        self._keys = GossipKeys(controller.kube, controller.namespace)

    async def run_while_leading(self) -> None:
        await self._keys.run()


PART = MembershipPart
