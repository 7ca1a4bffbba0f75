"""How an interface that something else made (OVS, the kernel) has to be: MTU, up, MAC; and one that only has addresses."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from antrea.rank import Rank

EXTERNAL_DEVICE: Final = "antrea-egress0"
"""Device with addresses of pools, which leads nowhere."""
EXTERNAL_PREFIX: Final = "antrea-ext."
"""Prefix of devices in the VLANs of pools."""


class Link(msgspec.Struct, frozen=True):
    """Dropping it leaves the interface as it is: who made it removes it."""

    name: str
    mtu: int
    """Bytes; 0 leaves it alone."""
    up: bool = True
    mac: str = ""
    """Empty: any."""
    whole_checksums: bool = False
    """Whether what is sent has whole checksums: transmit checksum offload is turned off."""
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.name


class Vlan(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-interface of a card, in one VLAN (`ip link add type vlan`); dropping it removes it and its addresses."""

    name: str
    card: str
    vlan: int
    mac: str
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.name


class Dummy(msgspec.Struct, frozen=True):
    """An interface that goes nowhere (`ip link add type dummy`); dropping it removes it and its addresses."""

    name: str
    category: int = 0

    rank: ClassVar[int] = Rank.RECEIVES

    @property
    def key(self) -> str:
        return self.name
