"""Self-signed certificate of the agent's API: renewed while the agent runs, and published before it is served.

Established connections continue. The Node's AntreaAgentInfo (`apiCABundle`) has the certificate for verification: at a renewal
both certificates for a while, so that every client can verify the one that it meets.
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
"""Age at which the next certificate is made."""
LAST_SECONDS = (DAYS - 1) * DAY
"""Age at which the next certificate is served although it could not be published."""
SKEW_SECONDS = 3600.0
"""Seconds before its creation from which a certificate is valid; an age below minus this means that the clock was set back."""
LOOK_SECONDS = 600.0
PUBLISH_SECONDS = 180.0
"""Seconds to wait until AntreaAgentInfo, which is updated once a minute, has the new certificate."""
POLL_SECONDS = 1.0


def begin() -> SelfSigning:
    """Start to make the server's key and certificate."""
    return SelfSigning(("antrea-agent-api", "localhost"), ("127.0.0.1", "::1"), DAYS)


def certificate() -> Certificate:
    """Make the server's key and certificate. Raises Unavailable."""
    return begin().result()


class ApiCertificate:
    """Certificate that lives as long as the process; each agent in it, one after the other, calls `run`."""

    def __init__(
        self,
        first: Certificate,
        make: Callable[[], Certificate] = certificate,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`first` was just made; `make` makes its successors."""
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
        """Renew until cancelled. `present` makes the server use a pair; `published` returns what clients can read of `trusted`."""
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
