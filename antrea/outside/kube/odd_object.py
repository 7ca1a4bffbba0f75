"""Objects that cannot be decoded: each is named in the log, in an Event about it and in a metric; others are unaffected."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, ClassVar

from antrea.apis.core import ObjectReference
from antrea.apis.shown import one_line
from antrea.outside.kube.event_recorder import EventRecorder
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.outside.kube.answer import Odd
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

MAX_EVENTS = 100
"""Maximum number of pending Events; more are left out, the log has them all."""
MAX_LENGTH = 300
REASON = "DecodeFailed"
UNREADABLE_OBJECTS = Metric(
    "antrea_unreadable_object_count",
    "gauge",
    "ALPHA",
    "Number of objects of a resource that cannot be read, so that what was last read of them counts.",
)


class OddObjects:
    """Objects of one resource that cannot be decoded."""

    counts: ClassVar[Counter[str]] = Counter()
    """Numbers of such objects of all resources of this process, by path."""

    def __init__(
        self,
        resource: str,
        component: str = "",
        host: str = "",
        *,
        records: Callable[[], bool] = lambda: True,
    ) -> None:
        """`component` records Events, while `records` returns True; without it there are only the log and the metric."""
        self._resource = resource
        self._component, self._host = component, host
        self._standing: dict[str, str] = {}
        self._events: deque[tuple[ObjectReference, str]] = deque(maxlen=MAX_EVENTS)
        self._news = asyncio.Event()
        self._records = records

    def __contains__(self, name: str) -> bool:
        return name in self._standing

    def note(self, odd: Odd) -> None:
        """Report an object that cannot be decoded, when it is new or its error changes."""
        why = one_line(odd.why)[:MAX_LENGTH]
        if self._standing.get(odd.full_name) == why:
            return
        self._standing[odd.full_name] = why
        self._count()
        log.warning(
            "Failed to decode an object; its last valid version stays in effect",
            resource=self._resource, object=one_line(odd.full_name), err=why,
        )  # fmt: skip
        if self._component and odd.kind and odd.uid and self._records():
            about = ObjectReference(odd.kind, odd.name, odd.namespace, odd.uid, odd.api_version)
            self._events.append((about, f"{why}: what was last read of this object counts, if anything was"))
            self._news.set()

    def clear(self, name: str) -> None:
        """It can be read, or is gone."""
        if self._standing and self._standing.pop(name, None) is not None:
            self._count()

    def _count(self) -> None:
        self.counts[self._resource] = len(self._standing)
        if not self._standing:
            del self.counts[self._resource]

    async def run(self, kube: Kube) -> None:
        """Make Events until cancelled."""
        while True:
            while self._events:
                about, why = self._events.popleft()
                await EventRecorder(about, self._component, self._host).warn(kube, REASON, why)
            self._news.clear()
            await self._news.wait()


def odd_object_metrics() -> str:
    """In Prometheus' format."""
    counts = sorted(OddObjects.counts.items())
    return (
        UNREADABLE_OBJECTS.text(Sample(count, {"resource": name}) for name, count in counts) if counts else ""
    )
