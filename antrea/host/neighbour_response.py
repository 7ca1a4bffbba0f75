"""Addresses that this Node answers for without having them on a device."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank


class NeighbourResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks on the link of `dev` for the neighbour `ip`, by ARP or neighbour discovery, is given the MAC address of `dev`."""

    category: ClassVar[int] = 0

    dev: str
    ip: str
    rank: int = Rank.SENDS

    @property
    def key(self) -> tuple[str, str]:
        return (self.dev, self.ip)
