"""Makes links, addresses, routes, rules, neighbours and sysctls of this Node be what is wanted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.errors import Refused
from antrea.host.route import RoutingRule
from antrea.outside.netlink.entry import KINDS, is_gone, name, routes_by
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ORDER = {kind: place for place, kind in enumerate(KINDS)}


class NetlinkSink:
    """For all of KINDS; works in the network namespace of the calling thread.

    An entry that the kernel refuses does not keep the others of its batch from being applied.
    """

    def __init__(self, gateway: str = "") -> None:
        """Routes to networks of Pods by `gateway` count as left by an earlier start, whichever protocol they have."""
        self._gateway = gateway
        self._previous: dict[tuple[type, Any], Any] = {}
        """Entries of an earlier start of the agent that were not wanted since."""

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Raises Refused naming those that the kernel refused, with its words about the first."""
        await asyncio.to_thread(self._apply, put, drop)

    async def resync(self, entries: Sequence[Any]) -> None:
        """Put what does not stand as wanted; remember what else of ours stands, for `sweep`. Raises as `apply`."""
        await asyncio.to_thread(self._resync, entries)

    async def sweep(self, category: int) -> None:
        """Remove what an earlier start left of this category. Raises as `apply`."""
        stale = [entry for entry in self._previous.values() if max(entry.category, 0) == category]
        await self.apply((), stale)

    async def rules(self) -> list[RoutingRule]:
        """The rules of routing that an earlier start of the agent left. Raises OSError."""
        return await asyncio.to_thread(_rules)

    def _apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        refused: list[Any] = []
        reasons: list[str] = []

        def attempt(change: Callable[[Rtnl, Any], None], entry: Any, *, gone_is_fine: bool) -> None:
            try:
                change(kernel, entry)
            except OSError as error:
                if not (gone_is_fine and is_gone(error)):
                    refused.append(entry)
                    reasons.append(f"{type(entry).__name__} {entry.key}: {error.strerror or error}")
                    return
            self._previous.pop(name(entry), None)

        with Rtnl() as kernel:
            for entry in sorted(put, key=_place):
                attempt(KINDS[type(entry)].put, entry, gone_is_fine=False)
            for entry in sorted(drop, key=_place, reverse=True):
                attempt(KINDS[type(entry)].drop, entry, gone_is_fine=True)
        if refused:
            raise Refused(refused, reasons[0])

    def _resync(self, entries: Sequence[Any]) -> None:
        with Rtnl() as kernel:
            standing = {name(entry): entry for entry in routes_by(kernel, self._gateway)}
            standing |= {name(entry): entry for kind in KINDS.values() for entry in kind.standing(kernel)}
        wanted = {name(entry) for entry in entries}
        self._previous = {known: entry for known, entry in standing.items() if known not in wanted}
        self._apply([entry for entry in entries if not _same(standing.get(name(entry)), entry)], ())


def _rules() -> list[RoutingRule]:
    with Rtnl() as kernel:
        return list(KINDS[RoutingRule].standing(kernel))


def _place(entry: Any) -> int:
    return _ORDER[type(entry)]


def _same(standing: Any, wanted: Any) -> bool:
    """Apart from the rank, which the kernel does not keep."""
    if standing is None:
        return False
    return {**_fields(standing), "rank": 0} == {**_fields(wanted), "rank": 0}


def _fields(entry: Any) -> dict[str, Any]:
    return {field: getattr(entry, field) for field in entry.__struct_fields__}
