"""An IP address of an interface of this Node."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank


class Address(msgspec.Struct, frozen=True):
    """An address of the device `dev`, which the agent assigns."""

    dev: str
    cidr: str
    """With prefix length: "10.244.1.1/24", "fd00:10:244:1::1/64"."""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> tuple[str, str]:
        return (self.dev, self.cidr)
