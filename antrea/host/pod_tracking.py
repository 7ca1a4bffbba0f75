"""Addresses of the Pods of this Node, as connection tracking has to know them: connections do not outlive their Pod."""

from __future__ import annotations

from typing import ClassVar, Self

import msgspec

from antrea.rank import Rank


class TrackedPodAddress(msgspec.Struct, frozen=True):
    """An address and the Pods that have it: when one of them goes, what is tracked of the address is forgotten."""

    rank: ClassVar[int] = Rank.REPORT
    """Connections are looked at once the flows stand, by a task of its own: nothing waits for it."""
    category: ClassVar[int] = 0
    parts_only: ClassVar[bool] = True

    ip: str
    parts: tuple[str, ...]
    """Interfaces, each with the identity of its port; several for the moment in which an address changes hands."""

    @property
    def key(self) -> str:
        return self.ip

    def with_parts(self, parts: tuple[str, ...]) -> Self:
        """Return the merged tracking of all Pods with the address."""
        return msgspec.structs.replace(self, parts=tuple(sorted(set(parts))))
