"""br-phy, the bridge that holds the transport interface on the userspace datapath, and the record of that interface in OVSDB.

The addresses and routes of the interface are on br-phy meanwhile. The record is what a start of the agent, and the removal of
Antrea, restore them from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

PHYSICAL_BRIDGE: Final = "br-phy"
_INTERFACE, _ADDRESSES, _ROUTES = "antrea-interface", "antrea-addresses", "antrea-routes"


class HeldCard(msgspec.Struct, frozen=True):
    """The transport interface as it was before br-phy took it over."""

    interface: str
    addresses: tuple[str, ...]
    """Global ones with prefix length."""
    routes: tuple[tuple[str, str], ...]
    """Destination and next hop; an empty destination is the default one."""

    @classmethod
    def of(cls, external_ids: Mapping[str, str]) -> HeldCard | None:
        """Read the record from `external_ids` of the bridge; None: there is no record."""
        addresses = _list(external_ids.get(_ADDRESSES, ""))
        if not addresses:
            return None
        pairs = (route.partition(">") for route in _list(external_ids.get(_ROUTES, "")))
        routes = tuple((destination, via) for destination, _, via in pairs)
        return cls(external_ids[_INTERFACE], addresses, routes)

    def external_ids(self) -> tuple[tuple[str, str], ...]:
        """Return the record as `external_ids` of the bridge."""
        return (
            (_INTERFACE, self.interface),
            (_ADDRESSES, ",".join(self.addresses)),
            (_ROUTES, ",".join(f"{destination}>{via}" for destination, via in self.routes)),
        )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)
