"""The report of an agent to antrea-controller on a policy that its Node has realized, or cannot."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank

ON_NODE = "enforced on the Node"
"""Message of a report on a policy for the Node itself where nothing of it fails; reports of agents without such policies have none."""

AT_SERVICES = "; not at addresses of Services: "
"""Part of the same message, before the rules that do not hold where another program translates packets to Services first."""


class PolicyReport(msgspec.Struct, frozen=True):
    """An entry: it is sent after the flows of its pass stand, and withdrawing it sends nothing."""

    policy: str
    """Name of the internal policy, the UID of the user's."""
    node: str
    generation: int
    failure: str = ""
    """Why a part of it cannot be enforced; empty if all is."""
    kept: str = ""
    """ON_NODE, or what it would have cut, and the Node keeps; sent only where all of it is enforced."""
    translated: str = ""
    """Rules on the Node, and ports of Services at which they do not hold; sent as `kept` is, behind AT_SERVICES."""

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0
    forgets: ClassVar[bool] = True

    @property
    def message(self) -> str:
        """Text of the report."""
        behind = f"{AT_SERVICES}{self.translated}" if self.translated else ""
        return self.failure or f"{self.kept}{behind}"

    @property
    def key(self) -> str:
        return self.policy
