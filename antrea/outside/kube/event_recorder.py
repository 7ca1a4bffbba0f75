"""Record Events on an object, which `kubectl describe` shows."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Refused, Unavailable
from antrea.outside.kube.backoff import Backoff
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.apis.core import ObjectReference
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

TRIES: Final = 12
"""# parity: k8s.io/client-go/tools/record maxTriesPerEvent"""
MAX_PAUSE: Final = 10.0
"""Seconds, stretched up to twofold, between two tries."""


class EventRecorder(NamedTuple):
    """Records Events of one component about one object, as client-go's EventRecorder."""

    about: ObjectReference
    component: str
    host: str = ""
    """The Node of the program."""

    async def warn(self, kube: Kube, reason: str, message: str, *, tries: int = 1) -> None:
        """Record a Warning; a failure is logged."""
        await self.record(kube, reason, message, warning=True, tries=tries)

    async def record(
        self, kube: Kube, reason: str, message: str, *, warning: bool = False, at: float = 0.0, tries: int = 1
    ) -> None:
        """Record an Event, Normal or Warning; a failure is logged.

        `at` is the time at which it happened, 0 now: recording twice with the same time gives one Event.
        """
        at = at or time.time()
        pause = Backoff(asyncio.sleep, random.uniform, longest=MAX_PAUSE)
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
            except Refused as error:
                if "already exists" not in error.why:
                    log.error("Failed to create an Event", error=error, reason=reason)
                return None
            except Unavailable as error:
                if not left:
                    log.error("Failed to create an Event", error=error, reason=reason)
                    return None
                log.v(2).info(
                    "Retrying an Event; kube-apiserver is unavailable", reason=reason, err=str(error)
                )
            await pause.wait()
        return None


class _QueuedEvent(NamedTuple):
    reason: str
    message: str
    warning: bool
    at: float


class EventQueue:
    """Events waiting to be recorded, in order: adding one does not wait, and none is lost while kube-apiserver is unavailable."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._queued: deque[_QueuedEvent] = deque()
        self._news = asyncio.Event()

    def record(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add an Event."""
        self._queued.append(_QueuedEvent(reason, message, warning, time.time()))
        self._news.set()

    async def run(self, kube: Kube | None) -> None:
        """Record Events until cancelled; the rest is left to the next run. `kube` None: drop them."""
        while True:
            if kube is None:
                self._queued.clear()
            while kube and self._queued:
                reason, message, warning, at = self._queued[0]
                await self._recorder.record(kube, reason, message, warning=warning, at=at, tries=TRIES)
                self._queued.popleft()
            self._news.clear()
            await self._news.wait()
