"""What an agent tells antrea-controller of a policy that its Node has realised, or cannot."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class PolicyReport(msgspec.Struct, frozen=True):
    """An entry: it is told after the flows of its pass stand, and withdrawing it tells nothing."""

    policy: str
    """Name of the internal policy, the UID of the user's."""
    node: str
    generation: int
    failure: str = ""
    """Why a part of it cannot be enforced; empty if all is."""

    rank: ClassVar[int] = 1000
    category: ClassVar[int] = 0
    forgets: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return self.policy
