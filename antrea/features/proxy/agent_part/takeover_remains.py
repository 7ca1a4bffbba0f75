"""Release of what `antctl kube-proxy takeover` holds for earlier connections, once these have ended."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.outside.log import klog
from antrea.outside.netlink import kept_route
from antrea.outside.netlink.held_address import DEVICE, give_up, goes_on, held_addresses, release
from antrea.outside.netlink.ipvs_connection import stay_as_they_are
from antrea.outside.netlink.translated_connection import translated_connections

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

log = klog.logger(__name__)

LOOK_SECONDS: Final = 30.0


class TakeoverRemains:
    """Release after two looks without a connection of it: between, one may be handed over."""

    def __init__(
        self,
        gateway: str,
        earlier: Callable[[], Collection[str]] = tuple,
        *,
        proxy_all: bool,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`earlier`: addresses to which connections continue by the switch.

        With `proxy_all` a take-over is being rolled back, or was begun again: routes are kept.
        """
        self._earlier = earlier
        self._gateway, self._proxy_all, self._look_seconds = gateway, proxy_all, look_seconds
        self._unused: set[str] = set()
        self._over = self._idle = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await asyncio.to_thread(self.check, frozenset(self._earlier()))
            except (OSError, subprocess.SubprocessError, Unavailable) as error:
                log.v(2).info("Connections from before cannot be looked at now", err=str(error))

    def check(self, earlier: frozenset[str] = frozenset()) -> None:
        """Check once. Raises OSError, SubprocessError, Unavailable."""
        self._look_addresses()
        if not self._proxy_all and kept_route.may_stand(self._gateway):
            self._look_routes(earlier)

    def _look_addresses(self) -> None:
        try:
            socket.if_nametoindex(DEVICE)
        except OSError:
            self._unused, self._over = set(), False
            return
        held = {*held_addresses()}
        unused = held.difference(connection.source for connection in translated_connections())
        over = unused == held and not goes_on(translated_connections())
        ended = unused & self._unused
        if over and self._over and ended == held:
            give_up()
        elif ended:
            release(sorted(ended))
        if ended:
            log.info("Released addresses of connections that have ended", count=len(ended))
        self._unused, self._over = unused, over

    def _look_routes(self, earlier: frozenset[str]) -> None:
        kept = kept_route.kept_addresses()
        idle = bool(kept) and earlier.isdisjoint(kept) and not stay_as_they_are(kept)
        if idle and self._idle:
            kept_route.give_up(self._gateway)
            log.info("Gave up routes of connections that have ended", count=len(kept))
        self._idle = idle
