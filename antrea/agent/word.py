"""Whether what antrea-controller has said covers a Pod of this Node, so that its first packet is judged.

Upstream does not ask: a Pod that is ahead of the controller's word is open until that comes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from antrea.agent.starts import Starts
from antrea.errors import Unavailable
from antrea.facts.pod import LocalPod
from antrea.features.network_policy.service import lacks_services
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts

log = klog.logger(__name__)

SECONDS = 2.0
"""How long a Pod's start waits."""
FIRST_SECONDS = 30.0
"""The same while the controller has said nothing at all to this agent, as in a cluster that starts: as for the Node's network."""
SPARE = 64
"""Pods that are remembered beyond twice those of the Node."""


class Says(Protocol):
    """What is asked of the connection to antrea-controller."""

    listeners: list[Callable[[], None]]

    @property
    def processed(self) -> float: ...

    @property
    def trouble(self) -> str: ...


class Word:
    """Pods that were covered once stay so: what is known of them is changed by the controller's word alone."""

    def __init__(self, facts: Facts, says: Says, *, fail_open: bool) -> None:
        self._facts = facts
        self._says = says
        self._fail_open = fail_open
        self._covered: set[str] = set()
        """UIDs."""
        self.earlier: frozenset[str] = frozenset()
        """UIDs of Pods that were covered when its last word was kept, with which this process began."""
        self.starts = Starts()
        self._spoken = False
        self._news = asyncio.Event()
        facts.listeners.append(self._news.set)
        says.listeners.append(self._news.set)

    async def covers(self, pod: str, uid: str) -> None:
        """Returns when it does: "namespace/name", and its UID if the runtime has said. Raises Unavailable if it does not in time."""
        known = "never" if self._lacks(pod, uid) else "at once"
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._patience(pod, uid)) as limit:
                while (missing := self._lacks(pod, uid)) and not self._hopeless:
                    self._news.clear()
                    silent = not self._has_spoken
                    await self._news.wait()
                    if silent and self._has_spoken:
                        limit.reschedule(clock() + SECONDS)
                known = known if missing or known == "at once" else "in time"
        except TimeoutError:
            missing = self._lacks(pod, uid)
            if not missing:
                # it came at the very moment in which the time was over
                known = "in time"
            elif self._was_covered(pod, uid):
                log.warning("A Pod starts with what antrea-controller said last", pod=pod, lacks=missing)
                missing, known = "", "earlier"
            elif not self._fail_open:
                self.starts.note(known, clock() - began)
                raise Unavailable(f"{missing}, within {self._patience(pod, uid):g} s") from None
        if missing:
            log.warning("A Pod starts before its policies are known", pod=pod, lacks=missing)
        self.starts.note(known, clock() - began)

    def all_covered(self) -> set[str]:
        """UIDs of the Pods that are covered, now or by the last word, whether they have started here or not."""
        known = self._covered | self.earlier
        if not self._facts.feeds.has(LocalPod):
            return known
        pods, processed = self._facts.all(LocalPod), self._says.processed
        return {pod.uid for pod in pods if pod.uid in known or pod.version <= processed}

    def _was_covered(self, pod: str, uid: str) -> bool:
        row = self._facts.get(LocalPod, pod)
        return row is not None and uid in ("", row.uid) and row.uid in self.earlier

    def _patience(self, pod: str, uid: str) -> float:
        early = not self._has_spoken and not self._fail_open and not self._was_covered(pod, uid)
        return FIRST_SECONDS if early else SECONDS

    @property
    def _has_spoken(self) -> bool:
        """The controller, to this start of the agent."""
        self._spoken = self._spoken or self._says.processed > 0
        return self._spoken

    @property
    def _hopeless(self) -> bool:
        """Who prefers an open start does not wait for a controller that is away."""
        return self._fail_open and bool(self._says.trouble)

    def _lacks(self, pod: str, uid: str) -> str:
        """What is missing; empty if nothing is."""
        row = self._facts.get(LocalPod, pod)
        if row is None or uid not in ("", row.uid):
            return f"word of kube-apiserver on Pod {pod}"
        if row.uid in self._covered:
            return ""
        if row.version > self._says.processed:
            trouble = self._says.trouble
            return f"word of antrea-controller on policies for Pod {pod}" + (
                f" ({trouble})" if trouble else ""
            )
        if lacks_services(self._facts):
            return "word of kube-apiserver on Services, which policies name"
        self._remember(row.uid)
        return ""

    def _remember(self, uid: str) -> None:
        self._covered.add(uid)
        pods = self._facts.all(LocalPod)
        if len(self._covered) > 2 * len(pods) + SPARE:
            self._covered &= {pod.uid for pod in pods}
