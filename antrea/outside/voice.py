"""Events on one object: where `kubectl describe` shows what its user has to do."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Refused, Unavailable
from antrea.outside import klog
from antrea.outside.pause import Pause

if TYPE_CHECKING:
    from antrea.apis.core import ObjectReference
    from antrea.outside.kube import Kube

log = klog.logger(__name__)

TRIES: Final = 12
"""# parity: k8s.io/client-go/tools/record maxTriesPerEvent"""
LONGEST_PAUSE: Final = 10.0
"""Seconds, stretched up to twofold, between two tries."""


class Voice(NamedTuple):
    """A program that speaks about an object."""

    about: ObjectReference
    component: str
    host: str = ""
    """The Node of the program."""

    async def warn(self, kube: Kube, reason: str, message: str, *, tries: int = 1) -> None:
        """Make a Warning; where the API server does not take it, the log says so."""
        await self.tell(kube, reason, message, warning=True, tries=tries)

    async def tell(
        self, kube: Kube, reason: str, message: str, *, warning: bool = False, at: float = 0.0, tries: int = 1
    ) -> None:
        """Make an Event that is Normal, or a Warning; where the API server does not take it, the log says so.

        `at` is the time at which it happened, 0 now: what is told twice with the same time is one Event.
        """
        at = at or time.time()
        pause = Pause(asyncio.sleep, random.uniform, longest=LONGEST_PAUSE)
        for left in reversed(range(tries)):
            try:
                return await kube.create_event(
                    self.about,
                    reason,
                    message,
                    warning=warning,
                    component=self.component,
                    host=self.host,
                    at=at,
                )
            except Refused as no:
                if "already exists" not in no.why:
                    log.error("Failed to create an Event", error=no, reason=reason)
                return None
            except Unavailable as no:
                if not left:
                    log.error("Failed to create an Event", error=no, reason=reason)
                    return None
                log.v(2).info("An Event has to wait for kube-apiserver", reason=reason, err=str(no))
            await pause.wait()
        return None


class _Unsaid(NamedTuple):
    reason: str
    message: str
    warning: bool
    at: float


class Outbox:
    """What a Voice has yet to say, in order: who tells does not wait, and nothing is lost while the API server is away."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._unsaid: deque[_Unsaid] = deque()
        self._news = asyncio.Event()

    def tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Have it said."""
        self._unsaid.append(_Unsaid(reason, message, warning, time.time()))
        self._news.set()

    async def run(self, kube: Kube | None) -> None:
        """Until cancelled; what has not been said by then is left to the next run. None: nobody hears it."""
        while True:
            if kube is None:
                self._unsaid.clear()
            while kube and self._unsaid:
                reason, message, warning, at = self._unsaid[0]
                await self._voice.tell(kube, reason, message, warning=warning, at=at, tries=TRIES)
                self._unsaid.popleft()
            self._news.clear()
            await self._news.wait()
