"""The certificate of the agent's API, which signs itself: renewed while the agent runs, and published before it is served.

Connections that stand go on. What it is verified by is in the Node's AntreaAgentInfo (`apiCABundle`): at a renewal both
certificates for a while, so that no client meets one that it cannot verify.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside.log import klog
from antrea.outside.tls.server_context import SelfSigning

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.outside.tls.server_context import Certificate

log = klog.logger(__name__)

DAY = 86_400.0
DAYS = 365
RENEW_SECONDS = (DAYS - 90) * DAY
"""Age at which the next one is made."""
LAST_SECONDS = (DAYS - 1) * DAY
"""Age at which the next one is served though it could not be published."""
SKEW_SECONDS = 3600.0
"""A certificate is valid from so long before it was made: older than that is a clock that was set back."""
LOOK_SECONDS = 600.0
PUBLISH_SECONDS = 180.0
"""For AntreaAgentInfo to be written, which is done once a minute."""
POLL_SECONDS = 1.0


def begin() -> SelfSigning:
    """Begin to make what the server proves itself with."""
    return SelfSigning(("antrea-agent-api", "localhost"), ("127.0.0.1", "::1"), DAYS)


def certificate() -> Certificate:
    """What the server proves itself with, once it is made. Raises Unavailable."""
    return begin().result()


class ApiCertificate:
    """Lives as long as the process; each agent in it, one after the other, runs `run`."""

    def __init__(
        self,
        first: Certificate,
        make: Callable[[], Certificate] = certificate,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`first` was just made; `make` gives the next ones."""
        self._make, self._clock = make, clock
        self.pair = first
        self._made = clock()
        self.trusted = self.pair.certificate_pem
        """PEM of all certificates that clients may meet now."""

    async def run(
        self,
        present: Callable[[Certificate], None],
        published: Callable[[], str],
        *,
        look: float = LOOK_SECONDS,
        patience: float = PUBLISH_SECONDS,
        poll: float = POLL_SECONDS,
    ) -> None:
        """Until cancelled. `present` lets the server use a pair; `published` is what clients can read of `trusted`."""
        while True:
            if self._age >= RENEW_SECONDS or self._age < -SKEW_SECONDS:
                await self._renew(present, published, patience, poll)
            await asyncio.sleep(look)

    @property
    def _age(self) -> float:
        return self._clock() - self._made

    async def _renew(
        self,
        present: Callable[[Certificate], None],
        published: Callable[[], str],
        patience: float,
        poll: float,
    ) -> None:
        before = self.pair
        try:
            fresh = await asyncio.to_thread(self._make)
        except Unavailable as error:
            log.error("Failed to renew the API certificate", error=error)
            return
        self.trusted = fresh.certificate_pem + before.certificate_pem
        try:
            async with asyncio.timeout(patience):
                while published() != self.trusted:  # noqa: ASYNC110 (written about once a minute)
                    await asyncio.sleep(poll)
        except TimeoutError:
            log.warning("Failed to publish the next API certificate in AntreaAgentInfo")
            if 0 <= self._age < LAST_SECONDS:
                self.trusted = before.certificate_pem
                return
        present(fresh)
        self.pair, self._made = fresh, self._clock()
        log.info("Renewed the API certificate")
        # who has read the object by now knows both
        self.trusted = fresh.certificate_pem
