"""A setting of the kernel's network stack in the network namespace of a Pod."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank


class PodSysctl(msgspec.Struct, frozen=True, kw_only=True):
    """Dropping it restores `default`, unless another program has changed the value meanwhile."""

    netns: str
    """Path of the network namespace, as this process reaches it."""
    path: str
    """Below /proc/sys: "net/ipv4/ip_local_port_range"."""
    value: str
    default: str
    """The kernel's value in a new network namespace."""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> tuple[str, str]:
        return self.netns, self.path
