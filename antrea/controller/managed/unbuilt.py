"""Events on annotations for features that are not built yet: one on each object.

The name of the Event is derived from the object and the message, so that it exists once although each replica records it
after each start.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

from antrea.apis.core import Event, EventSource, ObjectMeta, ObjectReference
from antrea.errors import Refused, Unavailable
from antrea.features.framework.unbuilt import KINDS, unbuilt
from antrea.outside.kube.clock import stamp
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

REASON, COMPONENT = "FeatureNotBuilt", "antrea-controller"
MOST = 10_000
"""Objects that are remembered, and of these those that wait: who annotates more has read of it by then."""
PAUSE_SECONDS = 0.1
"""Between two Events, so that users cannot make the controller flood kube-apiserver."""
RETRY_SECONDS = 5.0


class UnbuiltEvents:
    """Receives each object that feeds read, and records Events in a task of its own."""

    def __init__(self, kube: Kube, *, pause: float = PAUSE_SECONDS) -> None:
        self._kube = kube
        self._pause = pause
        self._told: dict[str, str] = {}
        """Last message by UID, the oldest first."""
        self._waiting: dict[str, Event] = {}
        self._news = asyncio.Event()

    def note(self, found: Any) -> None:
        """An object as it is now."""
        kind = type(found).__name__
        meta = found.metadata
        if kind not in KINDS or not meta.annotations:
            return
        message = unbuilt(kind, meta.annotations)
        if self._told.get(meta.uid, "") == message:
            return
        self._told.pop(meta.uid, None)
        self._told[meta.uid] = message
        self._waiting.pop(meta.uid, None)
        if message:
            about = ObjectReference(kind, meta.name, meta.namespace, meta.uid)
            self._waiting[meta.uid] = event(about, message)
            self._news.set()
        for known in (self._told, self._waiting):
            if len(known) > MOST:
                del known[next(iter(known))]

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                uid, told = next(iter(self._waiting.items()))
                if await self._tell(told) and self._waiting.get(uid) is told:
                    del self._waiting[uid]
                await asyncio.sleep(self._pause)

    async def _tell(self, told: Event) -> bool:
        """False if it has to be tried again."""
        try:
            await self._kube.create(f"/api/v1/namespaces/{told.metadata.namespace}/events", told)
        except Refused as no:
            if "already exists" not in no.why:
                log.v(2).info("kube-apiserver refused an Event on an unsupported field", err=no.why)
        except Unavailable as no:
            log.v(2).info("Retrying an Event; kube-apiserver is unavailable", reason=REASON, err=str(no))
            await asyncio.sleep(RETRY_SECONDS)
            return False
        return True


def event(about: ObjectReference, message: str) -> Event:
    """Equal for the same object and message, but for the time."""
    now, mark = stamp(), zlib.crc32(f"{about.uid}\n{message}".encode())
    return Event(
        metadata=ObjectMeta(name=f"{about.name}.{mark:08x}", namespace=about.namespace or "default"),
        involved_object=about,
        reason=REASON,
        message=message,
        type="Warning",
        source=EventSource(COMPONENT),
        first_timestamp=now,
        last_timestamp=now,
    )
