"""Gate that holds CNI ADD until antrea-controller has processed the Pod, so that policies apply to its first packet.

Upstream does not wait: its Pods are open until the controller's update arrives.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from antrea.agent.cni.start_metrics import PodStartMetrics
from antrea.errors import Unavailable
from antrea.facts.pod import LocalPod
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from antrea.engine import Facts

log = klog.logger(__name__)

SECONDS = 2.0
"""Timeout of a Pod's start."""
FIRST_SECONDS = 30.0
"""Timeout before the first update of the controller, as in a cluster that starts: as long as for the Node's network."""
SPARE_PODS = 64
"""Number of Pods that are remembered beyond twice those of the Node."""


class ControllerProgress(Protocol):
    """The part of the connection to antrea-controller that the gate reads."""

    listeners: list[Callable[[], None]]

    @property
    def processed(self) -> float: ...

    @property
    def trouble(self) -> str: ...


class PolicyGate:
    """Gate of Pod starts: a Pod that the controller has processed stays admitted; only a newer update can change that."""

    def __init__(
        self,
        facts: Facts,
        progress: ControllerProgress,
        *,
        fail_open: bool,
        lacking: Sequence[Callable[[Facts], str]] = (),
    ) -> None:
        """`lacking`: what features need beside antrea-controller's updates (`AgentFeature.lacking`)."""
        self._facts = facts
        self._progress = progress
        self._fail_open = fail_open
        self._lacking = lacking
        self._covered: set[str] = set()
        """UIDs of Pods that the controller has processed."""
        self.earlier: frozenset[str] = frozenset()
        """UIDs of Pods that were covered by the cached controller state with which this process began."""
        self.starts = PodStartMetrics()
        self._received = False
        self._news = asyncio.Event()
        facts.listeners.append(self._news.set)
        progress.listeners.append(self._news.set)

    async def wait(self, pod: str, uid: str) -> None:
        """Wait until the controller has processed this Pod. `pod` is namespace/name, `uid` may be empty. Raises Unavailable on timeout."""
        result = "timeout" if self._lacks(pod, uid) else "immediate"
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._patience(pod, uid)) as limit:
                while (missing := self._lacks(pod, uid)) and not self._admits_now:
                    self._news.clear()
                    silent = not self._has_received
                    await self._news.wait()
                    if silent and self._has_received:
                        limit.reschedule(clock() + SECONDS)
                result = result if missing or result == "immediate" else "waited"
        except TimeoutError:
            missing = self._lacks(pod, uid)
            if not missing:
                # it came at the very moment in which the time was over
                result = "waited"
            elif self._was_covered(pod, uid):
                log.warning("A Pod starts with the cached state of antrea-controller", pod=pod, lacks=missing)
                missing, result = "", "cached"
            elif not self._fail_open:
                self.starts.note(result, clock() - began)
                raise Unavailable(f"{missing} not received within {self._patience(pod, uid):g} s") from None
        if missing:
            log.warning("A Pod starts before its policies are complete", pod=pod, lacks=missing)
        self.starts.note(result, clock() - began)

    def covered_uids(self) -> set[str]:
        """Return the UIDs of the Pods that are covered, by the controller or the cached state, whether they have started here
        or not.
        """
        known = self._covered | self.earlier
        if not self._facts.feeds.has(LocalPod):
            return known
        pods, processed = self._facts.all(LocalPod), self._progress.processed
        return {pod.uid for pod in pods if pod.uid in known or pod.version <= processed}

    def _was_covered(self, pod: str, uid: str) -> bool:
        row = self._facts.get(LocalPod, pod)
        return row is not None and uid in ("", row.uid) and row.uid in self.earlier

    def _patience(self, pod: str, uid: str) -> float:
        early = not self._has_received and not self._fail_open and not self._was_covered(pod, uid)
        return FIRST_SECONDS if early else SECONDS

    @property
    def _has_received(self) -> bool:
        """Whether the controller has sent anything to this start of the agent."""
        self._received = self._received or self._progress.processed > 0
        return self._received

    @property
    def _admits_now(self) -> bool:
        """Whether to start without policies: with `fail_open` nothing waits for a controller that is away."""
        return self._fail_open and bool(self._progress.trouble)

    def _lacks(self, pod: str, uid: str) -> str:
        """Return what is missing; empty if nothing is."""
        row = self._facts.get(LocalPod, pod)
        if row is None or uid not in ("", row.uid):
            return f"Pod {pod} from kube-apiserver"
        if row.uid in self._covered:
            return ""
        if row.version > self._progress.processed:
            trouble = self._progress.trouble
            return f"policies for Pod {pod} from antrea-controller" + (f" ({trouble})" if trouble else "")
        missing = next(filter(None, (lacking(self._facts) for lacking in self._lacking)), "")
        if not missing:
            self._remember(row.uid)
        return missing

    def _remember(self, uid: str) -> None:
        self._covered.add(uid)
        pods = self._facts.all(LocalPod)
        if len(self._covered) > 2 * len(pods) + SPARE_PODS:
            self._covered &= {pod.uid for pod in pods}
