"""Addresses that this Node answers for without having them on a device."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank


class NeighbourResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to hosts on the link of `dev` that ask for the neighbour `ip`, by ARP or neighbour discovery: the MAC address of `dev`."""

    category: ClassVar[int] = 0

    dev: str
    ip: str
    rank: int = Rank.SENDS

    @property
    def key(self) -> tuple[str, str]:
        return (self.dev, self.ip)
