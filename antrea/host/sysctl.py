"""A setting of the kernel's network stack."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank


class Sysctl(msgspec.Struct, frozen=True):
    """Dropping it leaves the value: what it was before is not known, and others may have come to need it."""

    path: str
    """Below /proc/sys, with slashes, because interface names have dots: "net/ipv4/conf/antrea-ext.5/rp_filter"."""
    value: str
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.path
