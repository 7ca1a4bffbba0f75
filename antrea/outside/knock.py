"""Asks again and again whether somebody hears, so that a probe can tell; kubelet starts anew who does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = klog.logger(__name__)

PERIOD_SECONDS = 5.0
"""Between two tries."""


class Knock:
    """`ask` returns when it was heard, and raises Unavailable if nobody is there; `whom` is for the log."""

    def __init__(
        self, whom: str, ask: Callable[[], Awaitable[None]], *, period: float = PERIOD_SECONDS
    ) -> None:
        self._whom = whom
        self._ask = ask
        self._period = period
        self.trouble = ""
        """Why nobody hears; empty while all is well."""

    async def run(self) -> None:
        """Forever."""
        while True:
            await asyncio.sleep(self._period)
            trouble = ""
            try:
                await self._ask()
            except Unavailable as silent:
                trouble = str(silent)
            if trouble != self.trouble:
                log.error("Tried whether somebody hears", whom=self._whom, err=trouble or "it answers again")
            self.trouble = trouble
