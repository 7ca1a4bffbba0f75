"""State that a member keeps of one other member."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from antrea.outside.gossip.message import Standing

if TYPE_CHECKING:
    from antrea.outside.gossip.suspicion import Suspicion


class PeerState:
    """State of one peer; before anything is known of it, it is dead."""

    __slots__ = ("heard", "incarnation", "place", "standing", "suspicion", "synced")

    def __init__(self, name: str) -> None:
        self.incarnation = -1
        self.standing = Standing.DEAD
        self.suspicion: Suspicion | None = None
        self.heard = self.synced = float("-inf")
        self.place = place(name)

    @property
    def lives(self) -> bool:
        return self.standing <= Standing.SUSPECT


def place(name: str) -> bytes:
    """Where a member stands on the ring."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()
